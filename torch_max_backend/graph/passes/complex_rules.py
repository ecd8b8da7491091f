"""All rules of complex numbers."""

from __future__ import annotations

from torch_max_backend.graph.passes import (  # noqa: F401  they register their rules
    complex_arithmetic,
    complex_functions,
    complex_movement,
    complex_transforms,
)
from torch_max_backend.graph.passes.complex_registry import NotTaken, rules

__all__ = ["NotTaken", "rules"]
