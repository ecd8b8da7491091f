"""What differs between the versions of torch that this package runs with, the lowest first.

`tests/torch_versions.py` says how each is tried. Whoever raises the lowest version in
``pyproject.toml`` deletes the branches that name a version below it.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverloadPacket
from torch.fx.experimental import symbolic_shapes

# torch 2.12 renamed `size_hint`, and dropped the old name.
if hasattr(symbolic_shapes, "optimization_hint"):
    from torch.fx.experimental.symbolic_shapes import optimization_hint
else:
    from torch.fx.experimental.symbolic_shapes import size_hint as optimization_hint


def _packets(*names: str) -> tuple[OpOverloadPacket, ...]:
    """Those of some ATen operators that this torch has."""
    found = (getattr(torch.ops.aten, name, None) for name in names)
    return tuple(packet for packet in found if packet is not None)


# torch 2.12 added them.
LANCZOS = _packets("_upsample_lanczos2d_aa")
LANCZOS_BACKWARD = _packets("_upsample_lanczos2d_aa_backward")

__all__ = ["LANCZOS", "LANCZOS_BACKWARD", "optimization_hint"]
