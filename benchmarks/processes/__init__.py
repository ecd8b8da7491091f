"""What one process of a measurement runs, one framework each."""
