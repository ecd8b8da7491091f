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

aten = torch.ops.aten

# Results of these that gradients depend on are not of the running statistics, while they train.
_BATCH_NORMS = (
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update_functional.default,
)

# Torch does not ask what must be saved where the budget is 0.
_LEAST_BUDGET = 1e-9


def partition(joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
    """Torch's partition, where random numbers are drawn once, and arguments read before they are
    written to.

    Of an operator that is computed again to save memory, backward would draw other numbers than
    forward: graphs of ours have a seed each, not a generator whose state could be brought back.
    What was drawn is kept; a dropout's mask is a byte an element.

    Torch keeps arguments for backward, and computes from them again, also where forward has written
    to them since: the buffers of a spectral norm, say. What they held is kept instead.

    Raises:
        UnsupportedError: Torch would draw or read again in spite of that.
    """
    held = _held(joint, kwargs["num_fwd_outputs"])
    drawn = [node for node in joint.graph.nodes if _draws(node)]
    if not held and not drawn:
        return min_cut_rematerialization_partition(joint, *args, **kwargs)
    for node in (*held, *drawn):
        _keep(node)
    budget = config.activation_memory_budget or _LEAST_BUDGET
    with config.patch(activation_memory_budget=budget):
        forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
    again = {n.name for n in forward.graph.nodes if _draws(n)}
    again &= {n.name for n in backward.graph.nodes if _draws(n)}
    again |= {n.name for n in held} & {n.name for n in backward.graph.nodes if n.all_input_nodes}
    if again:
        raise UnsupportedError(
            "Backward would draw random numbers of forward again, or read what it has written to: "
            f"{', '.join(sorted(again))}.",
            "Raise the memory budget of the region that holds these operators.",
        )
    return forward, backward


def _held(joint: GraphModule, forward_outputs: int) -> list[Node]:
    """Copies, made at the begin of forward, of the arguments that it writes to at its end and that
    gradients depend on; these read the copies from here on."""
    writes = joint.graph.find_nodes(op="call_function", target=aten.copy_.default)
    late = [w for w in writes if "backward" in w.meta.get("partitioner_tag", "")]
    early = [w for w in writes if w not in late and w.args[0].op == "placeholder"]
    (output,) = joint.graph.find_nodes(op="output")
    needed = _ancestors([*output.args[0][forward_outputs:], *late]) if early else set()
    copies = []
    first = next(node for node in joint.graph.nodes if node.op != "placeholder")
    for argument in dict.fromkeys(w.args[0] for w in early):
        # Forward's result, and what it or backward writes to, is the argument itself.
        itself = [output, *(w for w in writes if w.args[0] is argument)]
        readers = [u for u in argument.users if u not in itself]
        if any(u in needed and u.target not in _BATCH_NORMS for u in readers):
            with joint.graph.inserting_before(first):
                copy = joint.graph.call_function(aten.clone.default, (argument,))
            kept = ("partitioner_tag", "tensor_meta")
            copy.meta = {k: v for k, v in argument.meta.items() if k in kept}
            copy.meta["val"] = argument.meta["val"].clone()
            for reader in readers:
                reader.replace_input_with(argument, copy)
            copies.append(copy)
    return copies


def _ancestors(nodes: list[Any]) -> set[Node]:
    """The nodes among these, and all that they are computed from."""
    waiting = [node for node in nodes if isinstance(node, Node)]
    found = set(waiting)
    while waiting:
        new = [node for node in waiting.pop().all_input_nodes if node not in found]
        found.update(new)
        waiting += new
    return found


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
