"""What forward keeps for backward."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from torch_max_backend.compat.autograd import config
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.partitioning import min_cut_rematerialization_partition
from torch_max_backend.errors import UnsupportedError
from torch_max_backend.graph.arguments import schema_arguments

# Torch does not ask what must be saved where the budget is 0.
_LEAST_BUDGET = 1e-9


def partition(joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
    """Torch's partition, where random numbers are drawn once.

    Of an operator that is computed again to save memory, backward would draw other numbers than
    forward: graphs of ours have a seed each, not a generator whose state could be brought back.
    What was drawn is kept; a dropout's mask is a byte an element.

    Raises:
        UnsupportedError: Torch would draw again in spite of that.
    """
    drawn = [node for node in joint.graph.nodes if _draws(node)]
    if not drawn:
        return min_cut_rematerialization_partition(joint, *args, **kwargs)
    for node in drawn:
        _keep(node)
    budget = config.activation_memory_budget or _LEAST_BUDGET
    with config.patch(activation_memory_budget=budget):
        forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
    again = {n.name for n in forward.graph.nodes if _draws(n)}
    again &= {n.name for n in backward.graph.nodes if _draws(n)}
    if again:
        raise UnsupportedError(
            f"Backward would draw random numbers of forward again: {', '.join(sorted(again))}.",
            "Raise the memory budget of the region that holds these operators.",
        )
    return forward, backward


def _draws(node: Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    if all(a.name != "dropout_p" for a in node.target._schema.arguments):
        return True
    # Attention, mostly without dropout, and then expensive to keep.
    return any(name == "dropout_p" and value != 0 for name, _, value in schema_arguments(node))


def _keep(node: Node) -> None:
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for user in node.users:
        if user.target is operator.getitem:
            _keep(user)
