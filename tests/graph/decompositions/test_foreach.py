"""Operators on lists of tensors are what torch's operators on each of them are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_max_backend.graph.decompositions.foreach import decompositions

TAKEN_APART = decompositions()
LENGTH = 3


def _value(kind: str, name: str, chance: torch.Generator) -> Any:
    """An argument of a type of the schema's, within the domain of all operators."""
    if kind == "List[Tensor]":
        return [torch.rand(3, 3, generator=chance) * 0.8 + 0.1 for _ in range(LENGTH)]
    if kind == "List[number]":
        return [0.5 + i for i in range(LENGTH)]
    if kind == "Tensor":
        return torch.linspace(0.5, 1.5, LENGTH) if name == "scalars" else torch.tensor(1.5)
    return 1.5


@pytest.mark.parametrize("op", TAKEN_APART, ids=str)
def test_lists_are_taken_apart_as_torch_does(op: OpOverload) -> None:
    chance = torch.Generator().manual_seed(0)
    positional, named = [], {}
    for argument in op._schema.arguments:
        if argument.name in ("dtype", "memory_format", "non_blocking"):
            continue
        value = _value(str(argument.type), argument.name, chance)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    expected: list[Tensor] = op(*positional, **named)
    assert len(expected) == LENGTH
    torch.testing.assert_close(TAKEN_APART[op](*positional, **named), expected)


def test_every_one_that_torch_has_is_taken_apart() -> None:
    functional = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::_foreach_")
        and not name.partition(".")[0].endswith("_")
        and not name.endswith("out")
    }
    taken = {str(op).removeprefix("aten.").removesuffix(".default") for op in TAKEN_APART}
    assert functional == taken
