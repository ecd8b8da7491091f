"""Which operators are decomposed before conversion.

Torch's core ATen decompositions and a few more, minus every operator that has a lowering: what
is lowered is never decomposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._ops import OpOverload

from torch_max_backend.convert.registry import registry

aten = torch.ops.aten

# Not in torch's core table, but better taken apart than lowered.
_MORE = (
    aten.addcdiv,
    aten.addcmul,
    aten.rrelu_with_noise_backward,
    aten._unsafe_view,
    aten.upsample_bilinear2d,
    aten.upsample_bicubic2d,
    aten.upsample_trilinear3d,
)


def decomposition_table() -> dict[OpOverload, Callable[..., Any]]:
    """The decompositions for a trace with the lowerings registered at this moment."""
    table = dict(core_aten_decompositions())
    table.update(get_decompositions(_MORE))
    return {op: f for op, f in table.items() if op not in registry}
