"""``ops``: what becomes of an ATen operator, and the files of a new lowering."""
