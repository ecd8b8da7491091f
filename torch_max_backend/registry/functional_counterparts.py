"""Operators of the user's that write to their arguments, as functions.

AOTAutograd wraps such an operator in ``auto_functionalized``, whose results are the operator's and
then the new values of what it writes to. Its functional counterpart has those results too: it is
what a lowering is registered for, and what stands in the graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torch_max_backend.compat.operators import (
    OpOverload,
    get_mutable_args,
    read_view_information_from_args,
)

higher = torch.ops.higher_order

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_counterparts: dict[OpOverload, OpOverload] = {}


def misfit(op: OpOverload) -> str | None:
    """Why an operator that writes to arguments has no functional counterpart, or ``None``."""
    if op.namespace in ("aten", "prims"):
        return "torch.compile functionalizes before conversion; register the functional overload."
    if any(str(r.type) != "Tensor" or r.alias_info for r in op._schema.returns):
        return "It may return nothing but new tensors."
    if any(str(kind) != "Tensor" for kind in get_mutable_args(op)[1]):
        return "What it writes to must be of type Tensor."
    return None


def counterpart(op: OpOverload) -> OpOverload:
    """The function that returns what ``op`` returns, and then the new values of the arguments
    that it writes to; defined when it is first asked for."""
    found = _counterparts.get(op)
    if found is None:
        found = _counterparts[op] = _defined(op)
    return found


def _defined(op: OpOverload) -> OpOverload:
    name = re.sub(r"\W", "_", str(op))
    written = get_mutable_args(op)[0]
    arguments = re.sub(r"\(\w+!\)", "", str(op._schema).rpartition(" -> ")[0].partition("(")[2])
    results = ", ".join(["Tensor"] * (len(op._schema.returns) + len(written)))
    _library.define(f"{name}({arguments} -> ({results})", tags=(torch.Tag.pt2_compliant_tag,))

    def fake(*args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        given = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs
        new = {n: given[n].clone() for n in written}
        results = (*_results(op(**(given | new))), *new.values())
        return results if len(results) > 1 else results[0]

    torch.library.register_fake(f"torch_max_backend::{name}", fake, lib=_library)
    return getattr(torch.ops.torch_max_backend, name).default


def run_by(op: OpOverload, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Do what ``op`` does, by a function that returns what its counterpart returns."""
    given = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs
    results = _results(call(**given))
    count = len(op._schema.returns)
    for name, new in zip(get_mutable_args(op)[0], results[count:], strict=True):
        given[name].copy_(new)
    return results[:count] if count > 1 else results[0] if count else None


def _results(returned: Any) -> tuple[Tensor, ...]:
    if returned is None:
        return ()
    return tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


def is_known(wrapper: Node) -> bool:
    """Whether the functional counterpart of the operator that a node wraps is known."""
    return wrapper.args[0] in _counterparts


def _auto_functionalized(op: OpOverload, **arguments: Any) -> tuple[Any, ...]:
    """``auto_functionalized`` by the counterpart."""
    return _padded(op, _results(counterpart(op)(**arguments)))


def _auto_functionalized_v2(
    op: OpOverload, *, _all_bases: list[Tensor], **arguments: Any
) -> tuple[Any, ...]:
    """``auto_functionalized_v2`` by the counterpart: its results and the new bases, of which what
    is written to are views."""
    names, kinds = get_mutable_args(op)
    views = read_view_information_from_args(names, kinds, arguments, _all_bases)
    bases = [base.clone() for base in _all_bases]
    targets = {n: views[n].regenerate_view(bases) for n in names}
    results = _results(counterpart(op)(**arguments, **targets))
    count = len(results) - len(names)
    for target, new in zip(targets.values(), results[count:], strict=True):
        target.copy_(new)
    return (*_padded(op, results)[: max(1, count)], *bases)


def _padded(op: OpOverload, results: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """With the ``None`` that stands for an operator's results where it has none."""
    return tuple(results) if op._schema.returns else (None, *results)


# The wrappers, by what does the same with the counterpart.
WRAPPERS: dict[Any, Callable[..., Any]] = {
    higher.auto_functionalized: _auto_functionalized,
    higher.auto_functionalized_v2: _auto_functionalized_v2,
}
