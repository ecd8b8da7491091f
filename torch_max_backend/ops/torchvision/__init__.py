"""Lowerings of torchvision's operators, which exist once a program has imported torchvision: each
file is imported when a graph has one of them."""
