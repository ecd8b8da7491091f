"""Modules of an eager model that run as fused kernels: ``patch`` swaps their forward, ``unpatch``
puts it back."""

from torch_max_backend.patching.blocks import compiled
from torch_max_backend.patching.patches import Patch, patch, unpatch
from torch_max_backend.patching.projections import packed

__all__ = ["Patch", "compiled", "packed", "patch", "unpatch"]
