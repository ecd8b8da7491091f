"""``python -m torch_max_backend bench``: a model in several frameworks, in turns."""
