"""What a loaded package's call is given: bound to its parameters, and checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_max_backend.ahead_of_time.manifest import Input, Manifest
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.errors import InputError
from torch_max_backend.graph.expressions import evaluator


class Arguments:
    """Makes of a call's arguments what the compiled graph takes.

    Args:
        manifest: Of the package.
        spec: The structure of ``(args, kwargs)``.
    """

    def __init__(self, manifest: Manifest, spec: pytree.TreeSpec) -> None:
        positional, named = spec.children()
        self._spec = spec
        self._count = positional.num_children
        self._named = tuple(named.context)
        self._names = manifest.names[: self._count]
        self._flat = not self._named and all(c.is_leaf() for c in positional.children())
        self._inputs = manifest.inputs
        self._checks = [_Check(i, given) for i, given in enumerate(manifest.inputs)]
        self._taken = [i for i, given in enumerate(manifest.inputs) if given.kind != "constant"]
        self._symbols = list(manifest.symbols.items())
        self._extra = [k for k, (_, s) in enumerate(self._symbols) if s.argument]
        self._conditions = manifest.conditions
        names = list(manifest.symbols)
        sources = {s.source for s in manifest.symbols.values() if not s.argument}
        self._places = [
            (i, dim, size)
            for i, given in enumerate(manifest.inputs)
            for dim, size in _places(given)
            if isinstance(size, str) and (i, dim) not in sources
        ]
        texts = [size for *_, size in self._places] + [text for text, _ in self._conditions]
        self._evaluate = evaluator(texts, names) if texts else None
        written = {i.index for i in manifest.signature.inputs if i.mutated}
        written |= {index for index, _ in manifest.signature.copy_back}
        first = len(manifest.state)
        self._written = [i for k, i in enumerate(self._taken) if first + k in written]

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments of the graph, after the state.

        Raises:
            InputError: An argument is missing, too many, or not what the model was exported for.
        """
        leaves = self._leaves(args, kwargs)
        for check, leaf in zip(self._checks, leaves, strict=True):
            check(leaf)
        taken = [leaves[i] for i in self._taken]
        if self._symbols:
            values = self._sizes(leaves)
            taken += [values[k] for k in self._extra]
        if self._written:
            self._check_written(leaves)
        return taken

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        if self._flat and not kwargs and len(args) == self._count:
            return args
        given = dict(kwargs)
        late = [name for name in self._names[len(args) :] if name in given]
        args = (*args, *(given.pop(name) for name in late))
        missing = [name for name in self._named if name not in given]
        missing = [*self._names[len(args) :], *missing]
        if len(args) > self._count or missing or len(given) > len(self._named):
            unknown = [name for name in given if name not in self._named]
            raise InputError(
                f"The model was exported for {self._count} positional arguments"
                f"{_listed(self._names)} and the keyword arguments{_listed(self._named)}.",
                f"  Given: {len(args) - len(late)} positional arguments.",
                f"  Missing:{_listed(missing)}" if missing else None,
                f"  Unknown:{_listed(unknown)}" if unknown else None,
            )
        tree = (args, {name: given[name] for name in self._named})
        try:
            return self._spec.flatten_up_to(tree)
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise InputError(
                "The arguments have another structure than those that the model was exported for.",
                f"  {e}",
                f"  Expected: {pytree.treespec_pprint(self._spec)}",
            ) from e

    def _sizes(self, leaves: Sequence[Any]) -> list[int]:
        """The values of the symbols; raises if the sizes do not fit each other."""
        values = []
        for _, symbol in self._symbols:
            i, dim = symbol.source
            size = leaves[i] if dim < 0 else leaves[i].shape[dim]
            value, rest = divmod(size - symbol.offset, symbol.factor)
            most = math.inf if symbol.most is None else symbol.most
            if rest or not symbol.least <= value <= most:
                raise self._out_of_range(i, dim, size, symbol)
            values.append(value)
        if self._evaluate is not None:
            found = self._evaluate(*values)
            for (i, dim, text), value in zip(self._places, found, strict=False):
                size = leaves[i] if dim < 0 else leaves[i].shape[dim]
                if size != value:
                    raise InputError(
                        f"{_place(self._inputs[i], dim)} is {size}, and has to be {value}: "
                        f"{self._words(text)}."
                    )
            rest = found[len(self._places) :]
            for (_, message), holds in zip(self._conditions, rest, strict=True):
                if not holds:
                    raise InputError(
                        f"The model was exported for sizes with {message}.",
                        f"  Given: {self._given(values)}",
                    )
        return values

    def _out_of_range(self, i: int, dim: int, size: int, symbol: Any) -> InputError:
        factor, offset = symbol.factor, symbol.offset
        least = symbol.least * factor + offset
        most = "" if symbol.most is None else f" to {symbol.most * factor + offset}"
        every = "" if abs(factor) == 1 else f", {factor} times a number"
        every += f" plus {offset}" if every and offset else ""
        return InputError(
            f"{_place(self._inputs[i], dim)} is {size}; the model was exported for "
            f"{least}{most or ' and more'}{every}.",
            "Export it with a wider range in dynamic_shapes.",
        )

    def _words(self, text: str) -> str:
        """Where the symbols of an expression come from."""
        parts = [
            f"{name} is {_place(self._inputs[s.source[0]], s.source[1])}"
            for name, s in self._symbols
            if name in text
        ]
        return f"{text}, where {', '.join(parts)}"

    def _given(self, values: list[int]) -> str:
        return ", ".join(
            f"{_place(self._inputs[s.source[0]], s.source[1])} = {v * s.factor + s.offset}"
            for (_, s), v in zip(self._symbols, values, strict=True)
        )

    def _check_written(self, leaves: Sequence[Any]) -> None:
        """Raise if something that the model writes to is memory of another argument: MAX does not
        order such writes and reads."""
        extents = {
            i: _extent(leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
        }
        for i in self._written:
            start, end = extents[i]
            for j, (first, last) in extents.items():
                if i != j and first < end and start < last:
                    names = self._inputs[i].name, self._inputs[j].name
                    raise InputError(
                        f"{names[0]} and {names[1]} share memory, and the model writes to it.",
                        f"Give a clone as {names[1]}.",
                    )
        for i in self._written:
            if not leaves[i].is_inference():
                torch.autograd.graph.increment_version(leaves[i])


class _Check:
    """Checks one leaf of the arguments, all but what depends on symbols."""

    __slots__ = ("_device", "_dtype", "_given", "_rank", "_static")

    def __init__(self, position: int, given: Input) -> None:
        self._given = given
        self._dtype = getattr(torch, given.dtype) if given.kind == "tensor" else None
        self._device = torch.device(given.device) if given.kind == "tensor" else None
        self._rank = len(given.sizes)
        self._static = [(dim, size) for dim, size in _places(given) if isinstance(size, int)]

    def __call__(self, leaf: Any) -> None:
        if self._dtype is None:
            self._number(leaf)
            return
        if (
            not isinstance(leaf, torch.Tensor)
            or leaf.dtype is not self._dtype
            or leaf.dim() != self._rank
            or leaf.device != self._device
            or leaf.layout is not torch.strided
        ):
            raise self._error(leaf)
        shape = leaf.shape
        for dim, size in self._static:
            if shape[dim] != size:
                raise InputError(
                    f"{_place(self._given, dim)} is {shape[dim]}; the model was exported for "
                    f"{size} only.",
                    "Export it with dynamic_shapes to let it vary.",
                )

    def _number(self, leaf: Any) -> None:
        given = self._given
        if given.kind == "int":
            fits = type(leaf) is int
        else:
            fits = type(leaf) is type(given.value) and (leaf == given.value or leaf != leaf)
        if not fits:
            wanted = "an int" if given.kind == "int" else f"{given.value!r} only"
            raise InputError(
                f"{given.name} is {_described(leaf)}; the model was exported for {wanted}."
            )

    def _error(self, leaf: Any) -> InputError:
        given = self._given
        sizes = ", ".join(map(str, given.sizes))
        return InputError(
            f"{given.name} is {_described(leaf)}; the model was exported for a tensor of "
            f"torch.{given.dtype}[{sizes}] on {given.device}."
        )


def _places(given: Input) -> list[tuple[int, int | str]]:
    """The sizes of an input by dim; -1 is the dim of an int."""
    return (
        list(enumerate(given.sizes)) if given.kind == "tensor" else [(-1, s) for s in given.sizes]
    )


def _place(given: Input, dim: int) -> str:
    return given.name if dim < 0 else f"{given.name}.shape[{dim}]"


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte address + 1 of a tensor."""
    if tensor.numel() == 0:
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()


def _described(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        layout = "" if leaf.layout is torch.strided else f", {leaf.layout}"
        return f"a tensor of {leaf.dtype}{list(leaf.shape)} on {leaf.device}{layout}"
    text = " ".join(repr(leaf).split())
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(leaf).__name__})"


def _listed(names: Sequence[str]) -> str:
    return f" {', '.join(map(repr, names))}" if names else ""
