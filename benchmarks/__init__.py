"""The project's own measurements: commands, and the figures that they wrote."""
