"""Complex tensors of a graph as planes or pairs of real ones, and what writes formulas of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import detect_fake_mode, enable_python_dispatcher

aten = torch.ops.aten

Number = int | float | bool
_COMPLEX = (torch.complex64, torch.complex128)


class Real:
    """A real tensor of the graph, to write formulas with."""

    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer = writer
        self.node = node

    @property
    def value(self) -> torch.Tensor:
        return self.node.meta["val"]

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    def to(self, dtype: torch.dtype) -> Real:
        if self.dtype == dtype:
            return self
        return self.writer(torch.ops.prims.convert_element_type.default, self, dtype)

    def __add__(self, other: Real | Number) -> Real:
        return self.writer(aten.add.Tensor, self, other)

    __radd__ = __add__

    def __sub__(self, other: Real | Number) -> Real:
        return self.writer(aten.sub.Tensor, self, other)

    def __rsub__(self, other: Number) -> Real:
        return self.writer(aten.rsub.Scalar, self, other)

    def __mul__(self, other: Real | Number) -> Real:
        return self.writer(aten.mul.Tensor, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Real | Number) -> Real:
        return self.writer(aten.div.Tensor, self, other)

    def __neg__(self) -> Real:
        return self.writer(aten.neg.default, self)

    def equals(self, other: Real | Number) -> Real:
        kind = aten.eq.Tensor if isinstance(other, Real) else aten.eq.Scalar
        return self.writer(kind, self, other)

    def at_least(self, other: Real | Number) -> Real:
        kind = aten.ge.Tensor if isinstance(other, Real) else aten.ge.Scalar
        return self.writer(kind, self, other)

    def filled(self, number: Number, **settings: Any) -> Real:
        """One number in this shape."""
        return self.writer(aten.full_like.default, self, number, **settings)


class Complex:
    """A complex tensor of the graph: planes or pairs, each made from the other when needed."""

    def __init__(
        self,
        writer: Writer,
        planes: tuple[Real, Real] | None = None,
        pairs: Real | None = None,
    ) -> None:
        self._writer = writer
        self._planes = planes
        self._pairs = pairs

    @property
    def planes(self) -> tuple[Real, Real]:
        if self._planes is None:
            source = self._pairs
            re, im = (self._writer(aten.select.int, source, -1, i) for i in (0, 1))
            self._planes = re, im
        return self._planes

    @property
    def re(self) -> Real:
        return self.planes[0]

    @property
    def im(self) -> Real:
        return self.planes[1]

    @property
    def pairs(self) -> Real:
        if self._pairs is None:
            columns = [self._writer(aten.unsqueeze.default, p, -1) for p in self.planes]
            self._pairs = self._writer(aten.cat.default, columns, -1)
            self._writer.made[self._pairs.node] = self
        return self._pairs

    @property
    def sized(self) -> Real:
        """Something with the same leading sizes."""
        if self._pairs is not None:
            return self._pairs
        return self.planes[0]


class Writer:
    """Writes nodes of a graph before one that is to be replaced."""

    def __init__(self, module: GraphModule) -> None:
        self.graph = module.graph
        values = [n.meta.get("val") for n in self.graph.nodes]
        self.mode = detect_fake_mode(values)
        # Nodes of pairs, so that their planes need not be taken out of them again.
        self.made: dict[Node, Complex] = {}
        # Before which node to write, and whose line in the user's source the new ones have.
        self.place: Any = None
        self.origin: Any = None

    def __call__(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """A call of an operator: what it returns, tensors as ``Real``."""
        args, kwargs = mapped((args, kwargs), lambda v: v.node if isinstance(v, Real) else v)
        given = map_arg((args, kwargs), lambda n: n.meta["val"])
        with self.tracing():
            value = op(*given[0], **given[1])
        return self._wrapped(self.node(op, args, kwargs, value), value)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """In the body, operators compute metadata alone, symbolic sizes included."""
        with torch.no_grad(), self.mode, enable_python_dispatcher():
            yield

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the node to be replaced has."""
        return self.place.meta["val"].dtype

    def node(self, target: Any, args: Any, kwargs: Any, value: Any) -> Node:
        with self.graph.inserting_before(self.place):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {k: v for k, v in self.origin.meta.items() if k != "val"}
        node.meta["val"] = value
        return node

    def _wrapped(self, node: Node, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            parts = [self.node(operator.getitem, (node, i), {}, v) for i, v in enumerate(value)]
            return [Real(self, part) for part in parts]
        return Real(self, node)

    def complex(self, re: Any, im: Any, dtype: torch.dtype) -> Complex:
        """Of planes that may be numbers or, the imaginary one, ``None`` for zero.

        Args:
            re: Real parts; one of the two is a tensor.
            im: Imaginary parts.
            dtype: The complex dtype of the result.
        """
        if not isinstance(re, Real):
            re = im.filled(re)
        if not isinstance(im, Real):
            im = re.filled(im or 0)
        if re.value.shape != im.value.shape:
            # Of an operand without imaginary part, or without real part, the shape still counts.
            re, im = re + im.filled(0), im + re.filled(0)
        real = dtype.to_real()
        return Complex(self, (re.to(real), im.to(real)))

    def of_pairs(self, pairs: Real) -> Complex:
        known = self.made.get(pairs.node)
        return known if known is not None else Complex(self, pairs=pairs)


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Nested lists, tuples and dicts with a function of each leaf in its place."""
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, function) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return function(value)


def is_complex(value: Any) -> bool:
    """Whether a ``meta["val"]`` is or holds a complex tensor that this pass takes."""
    if isinstance(value, (list, tuple)):
        return any(is_complex(v) for v in value)
    return isinstance(value, torch.Tensor) and value.dtype in _COMPLEX
