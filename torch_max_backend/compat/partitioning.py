"""How torch splits a joint graph into what forward keeps and what backward computes again."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._functorch import partitioners
    from torch._functorch.partitioners import get_default_op_list
    from torch._functorch.partitioners import min_cut_rematerialization_partition as _partition

aten = torch.ops.aten

# Views that torch does not list: backward would be given copies of them.
_VIEWS = (aten._conj, aten._neg_view, aten.view_as_complex, aten.view_as_real)


def min_cut_rematerialization_partition(
    joint: GraphModule, *args: Any, **kwargs: Any
) -> tuple[GraphModule, GraphModule]:
    """Torch's partition, for which views of complex numbers are computed again as other views
    are."""
    partitioners.get_default_op_list = _with_views
    try:
        forward, backward = _partition(joint, *args, **kwargs)
    finally:
        partitioners.get_default_op_list = get_default_op_list
    return forward, backward


def _with_views() -> Any:
    found = get_default_op_list()
    for operators in (found.view_ops, found.recomputable_ops, found.fusible_ops):
        operators.update(_VIEWS)
    return found
