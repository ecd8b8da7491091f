"""Complex numbers moved, and their planes taken apart and put together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.graph.passes.complex_arithmetic import logical_or, nonzero
from torch_max_backend.graph.passes.complex_planes import parts
from torch_max_backend.graph.passes.complex_registry import rule, rules
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer

aten = torch.ops.aten
prims = torch.ops.prims


# What acts on each plane by itself.


def _planar(op: OpOverload, data: Iterable[str], scalars: Iterable[str] = ()) -> None:
    """Register a rule: the operator itself, on the real and on the imaginary parts.

    Args:
        op: The operator.
        data: The names of the arguments that hold numbers, tensors or lists of them.
        scalars: The names of the arguments that are single numbers.
    """
    data, scalars = frozenset(data), frozenset(scalars)
    positional = [a.name for a in op._schema.arguments if not a.kwarg_only]

    def called(w: Writer, node: Any, args: Any, kwargs: Any) -> Any:
        planes: list[Any] = []
        value = w.place.meta["val"]
        dtype = (value[0] if isinstance(value, (list, tuple)) else value).dtype.to_real()
        for index in (0, 1):

            def of(name: str, value: Any, index: int = index) -> Any:
                if isinstance(value, torch.dtype) and value.is_complex:
                    return value.to_real()
                if name in scalars:
                    return parts(value)[index] or 0
                if isinstance(value, (list, tuple)):
                    return [of(name, v) for v in value]
                if name not in data:
                    return value
                return _plane(value, index, dtype)

            given = [of(n, v) for n, v in zip(positional, args, strict=False)]
            planes.append(w(op, *given, **{n: of(n, v) for n, v in kwargs.items()}))
        if op in _TOTALS:
            planes = [_kept_apart(w, p) for p in planes]
        if isinstance(planes[0], list):
            return [Complex(w, pair) for pair in zip(*planes, strict=True)]
        return w.complex(planes[0], planes[1], w.dtype)

    rules[op] = called


_TOTALS = (aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)


def _kept_apart(w: Writer, total: Real) -> Real:
    """A sum over one element each: MAX's compiler dies of a complex product of two reductions
    that it fuses with it."""
    single = w(aten.cumsum.default, w(aten.unsqueeze.default, total, -1), -1)
    return w(aten.squeeze.dim, single, -1)


def _plane(value: Any, index: int, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Complex):
        return value.planes[index].to(dtype)
    if isinstance(value, Real):
        return value.to(dtype) if index == 0 else value.filled(0, dtype=dtype)
    return value


_MOVING = (
    aten._unsafe_view.default, aten.alias.default, aten.alias_copy.default, aten.clone.default,
    aten.detach.default, aten.detach_copy.default, aten.diagonal.default, aten.expand.default,
    aten.flip.default, aten.gather.default, aten.index.Tensor, aten._unsafe_index.Tensor,
    aten.index_select.default, aten.lift.default, aten.lift_fresh.default,
    aten.lift_fresh_copy.default, aten.narrow_copy.default, aten.permute.default,
    aten.positive.default, aten.reflection_pad1d.default, aten.reflection_pad2d.default,
    aten.reflection_pad3d.default, aten.repeat.default, aten.replication_pad1d.default,
    aten.replication_pad2d.default, aten.replication_pad3d.default, aten.roll.default,
    aten.select.int, aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default, aten.take.default,
    aten.transpose.int, aten.tril.default, aten.triu.default, aten.unbind.int, aten.unfold.default,
    aten.unsafe_split.Tensor, aten.unsqueeze.default, aten.view.default, aten.neg.default,
    aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default,
    prims.clone.default, prims.view_of.default, prims.device_put.default,
)  # fmt: skip
for _op in _MOVING:
    _planar(_op, [_op._schema.arguments[0].name])
_planar(aten.cat.default, ["tensors"])
_planar(aten.where.self, ["self", "other"])
_planar(aten.masked_fill.Scalar, ["self"], ["value"])
_planar(aten.masked_fill.Tensor, ["self", "value"])
_planar(aten.masked_scatter.default, ["self", "source"])
_planar(aten.index_put.default, ["self", "values"])
_planar(aten._unsafe_index_put.default, ["self", "values"])
_planar(aten.put.default, ["self", "source"])
_planar(aten.scatter.src, ["self", "src"])
_planar(aten.scatter.value, ["self"], ["value"])
_planar(aten.scatter_add.default, ["self", "src"])
_planar(aten.select_scatter.default, ["self", "src"])
_planar(aten.slice_scatter.default, ["self", "src"])
_planar(aten.diagonal_scatter.default, ["self", "src"])
_planar(aten.select_backward.default, ["grad_output"])
_planar(aten.slice_backward.default, ["grad_output"])
_planar(aten.copy.default, ["self", "src"])
_planar(aten.fill.Scalar, ["self"], ["value"])
_planar(aten.fill.Tensor, ["self", "value"])
_planar(aten.embedding.default, ["weight"])
_planar(aten.full.default, [], ["fill_value"])
_planar(aten.scalar_tensor.default, [], ["s"])
_planar(aten.empty.memory_format, [])
_planar(aten.empty_strided.default, [])
_planar(aten.empty_permuted.default, [])


@rule(aten.constant_pad_nd.default)
def _constant_pad_nd(w: Writer, self: Complex, pad: Any, value: Any) -> Complex:
    filling = parts(value)
    planes = (
        w(aten.constant_pad_nd.default, p, pad, f or 0)
        for p, f in zip(self.planes, filling, strict=True)
    )
    return Complex(w, tuple(planes))


@rule(aten.full_like.default)
def _full_like(w: Writer, self: Any, fill_value: Any = 0, device: Any = None) -> Complex | Real:
    like = self.re if isinstance(self, Complex) else self
    settings = {} if device is None else {"device": device}
    if not w.dtype.is_complex:
        return like.filled(fill_value, dtype=w.dtype, **settings)
    re, im = parts(fill_value)
    dtype = w.dtype.to_real()
    first, second = (like.filled(v or 0, dtype=dtype, **settings) for v in (re, im))
    return Complex(w, (first, second))


@rule(aten.sym_size.int)
def _sym_size(w: Writer, self: Complex, dim: int) -> Any:
    node = w.place
    return w.node(aten.sym_size.int, (self.sized.node, dim), {}, node.meta["val"])


@rule(aten.as_strided.default)
def _as_strided(w: Writer, self: Complex, size: Any, stride: Any, storage_offset: Any) -> Complex:
    """The same view of the pairs, whose strides are twice those of the complex numbers."""
    source = w.place.args[0]
    pairs = self.pairs
    if source.op != "placeholder":
        with w.tracing():
            value = torch.view_as_real(source.meta["val"].resolve_conj().resolve_neg())
        pairs = Real(w, w.node(aten.alias.default, (pairs.node,), {}, value))
    strides = [*(_twice(w, s) for s in stride), 1]
    offset = None if storage_offset is None else _twice(w, storage_offset)
    return w.of_pairs(w(aten.as_strided.default, pairs, [*size, 2], strides, offset))


def _twice(w: Writer, size: Any) -> Any:
    if isinstance(size, int):
        return 2 * size
    return w.node(operator.mul, (size, 2), {}, size.meta["val"] * 2)


@rule(aten.copy_.default)
def _copy_(w: Writer, self: Complex, src: Any) -> Any:
    w(aten.copy_.default, self.pairs, src.pairs)
    return src


# Between complex and real.


@rule(aten._to_copy.default)
def _to_copy(w: Writer, self: Any, device: Any = None) -> Complex | Real:
    settings = {} if device is None else {"device": device}
    return _converted(
        w,
        self,
        lambda p: (
            w(aten.clone.default, p) if not settings else w(aten._to_copy.default, p, **settings)
        ),
    )


@rule(prims.convert_element_type.default)
def _convert(w: Writer, a: Any) -> Complex | Real:
    return _converted(w, a, lambda p: p)


def _converted(w: Writer, x: Any, move: Callable[[Real], Real]) -> Complex | Real:
    dtype = w.dtype
    re, im = parts(x)
    if dtype == torch.bool:
        return move(logical_or(w, nonzero(w, re), nonzero(w, im)))
    if not dtype.is_complex:
        return move(re.to(dtype))
    re = move(re.to(dtype.to_real()))
    return w.complex(re, None if im is None else move(im.to(dtype.to_real())), dtype)


@rule(aten.view_as_real.default)
def _view_as_real(w: Writer, self: Complex) -> Real:
    pairs = w(aten.alias.default, self.pairs)
    w.made[pairs.node] = self
    return pairs


@rule(aten.view_as_complex.default)
def _view_as_complex(w: Writer, self: Real) -> Complex:
    return w.of_pairs(self)


@rule(aten.real.default)
def _real(w: Writer, self: Complex) -> Real:
    return self.re


@rule(aten.imag.default)
def _imag(w: Writer, self: Complex) -> Real:
    return self.im


@rule(aten.complex.default)
def _complex(w: Writer, real: Real, imag: Real) -> Complex:
    return w.complex(real, imag, w.dtype)


@rule(aten.polar.default)
def _polar(w: Writer, abs: Real, angle: Real) -> Complex:
    return w.complex(abs * w(aten.cos.default, angle), abs * w(aten.sin.default, angle), w.dtype)


@rule(aten._conj.default, aten._conj_physical.default, aten.conj_physical.default)
def _conj(w: Writer, self: Complex) -> Complex:
    return Complex(w, (self.re, -self.im))


@rule(aten._neg_view.default)
def _neg_view(w: Writer, self: Any) -> Any:
    return Complex(w, (-self.re, -self.im)) if isinstance(self, Complex) else -self


@rule(aten.resolve_conj.default, aten.resolve_neg.default)
def _resolved(w: Writer, self: Any) -> Any:
    return self
