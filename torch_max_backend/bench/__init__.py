"""Benchmarks beside eager PyTorch and inductor."""
