"""What an operator is decomposed into, found by tracing it on arguments made up from its schema."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import FakeTensorMode, dispatch_functionalize, pytree

# Made-up arguments are tried in this order; few operators take none of them.
_SHAPES = ((2, 3, 4), (3, 3), (1, 3, 8, 8), (6,), (1, 3, 8, 8, 8), ())
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
_NUMBERS = (1, 0, 2)
# How many dimensions an argument such as int[] names.
_LENGTHS = (1, 2, 3)


@dataclass(frozen=True)
class Decomposition:
    """What an operator becomes.

    Attributes:
        operators: The ATen operators, with how often each is called, in the order of the trace.
        arguments: The arguments that it was traced with, in words.
    """

    operators: dict[OpOverload, int]
    arguments: str


def decomposition(op: OpOverload) -> Decomposition | None:
    """The operators that a graph holds instead of ``op``; ``None`` if no arguments could be made up
    that it takes."""
    from torch_max_backend.graph.decompositions.table import decomposition_table

    table = decomposition_table()
    for arguments in _candidates(op):
        with _quiet(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            given = pytree.tree_map_only(_Made, lambda made, m=mode: made.tensor(m), arguments)
            tensors, spec = pytree.tree_flatten(given)
            places = [i for i, leaf in enumerate(tensors) if isinstance(leaf, torch.Tensor)]

            def called(*values: torch.Tensor) -> Any:
                leaves = list(tensors)  # noqa: B023  called in this iteration
                for place, value in zip(places, values, strict=True):  # noqa: B023
                    leaves[place] = value
                return op(**pytree.tree_unflatten(leaves, spec))  # noqa: B023

            try:
                op(**given)
                # A copy: an operator may write to its arguments.
                values = [tensors[i].clone() for i in places]
                pure = dispatch_functionalize(called)
                traced = make_fx(pure, decomposition_table=table, tracing_mode="fake")(*values)
            except Exception:  # not for these arguments, for whatever reason
                continue
        nodes = [n.target for n in traced.graph.nodes if isinstance(n.target, OpOverload)]
        found = dict(Counter(t for t in nodes if t is not torch.ops.aten.detach.default))
        if op not in found:
            return Decomposition(found, _words(arguments))
    return None


@dataclass(frozen=True)
class _Made:
    """A tensor to be."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self, mode: FakeTensorMode) -> torch.Tensor:
        with mode:
            return torch.empty(self.shape, dtype=self.dtype)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def _candidates(op: OpOverload) -> Iterator[dict[str, Any]]:
    """Arguments to try: first without what may be left out, then with it."""
    choices = itertools.product((False, True), _DTYPES, _SHAPES, _LENGTHS, _NUMBERS)
    for everything, dtype, shape, length, number in choices:
        made: dict[str, Any] = {}
        for argument in op._schema.arguments:
            kind = str(argument.real_type)
            optional = kind.startswith("Optional[")
            if optional and not everything:
                if not argument.has_default_value():
                    made[argument.name] = None
                continue
            if argument.has_default_value() and argument.default_value is not None:
                continue
            kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
            if kind not in ("Layout", "Device", "MemoryFormat", "Generator"):
                count = argument.N or length
                made[argument.name] = _value(argument.name, kind, shape, dtype, count, number)
            elif not argument.has_default_value():
                made[argument.name] = torch.device("cpu") if kind == "Device" else None
        yield made


def example(op: OpOverload) -> dict[str, Any]:
    """Made-up values of the arguments that are no tensors, defaults where there are some."""
    found = {}
    for argument in op._schema.arguments:
        kind = str(argument.real_type)
        if argument.has_default_value():
            found[argument.name] = argument.default_value
        elif "Tensor" not in kind and not kind.startswith("Optional["):
            found[argument.name] = _value(
                argument.name, kind, (), torch.float32, argument.N or 1, 1
            )
    return found


def _value(
    name: str, kind: str, shape: tuple[int, ...], dtype: torch.dtype, count: int, number: int
) -> Any:
    """A value for an argument of a kind such as "Tensor" or "List[int]"."""
    if "Tensor" in kind:
        if name in ("index", "indices", "target", "offsets"):
            dtype = torch.int64
        elif name in ("mask", "condition"):
            dtype = torch.bool
        made = _Made(shape, dtype)
        return [made, made] if kind.startswith("List[") else made
    if kind.startswith("List["):
        return [number] * count
    known = {"float": 0.5, "bool": False, "str": "none", "ScalarType": dtype}
    return known.get(kind, number)


def _words(arguments: dict[str, Any]) -> str:
    def word(value: Any) -> str:
        return f"[{', '.join(map(word, value))}]" if isinstance(value, list) else str(value)

    return ", ".join(f"{name}: {word(value)}" for name, value in arguments.items())


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch warns and logs where made-up arguments are odd."""
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
