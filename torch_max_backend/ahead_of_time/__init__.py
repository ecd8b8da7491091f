"""Packages: a compiled model with its weights, in a folder that loads without a compiler."""
