"""What becomes of an operator that takes or returns complex numbers: formulas of real operators.

``re`` and ``im`` below are planes; an operand without imaginary part has ``None`` for it. A product
with such an operand is not the full one, so an infinite part does not make the other one NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._ops import OpOverload

import torch_max_backend.graph.decompositions.fft_operators  # noqa: F401  defines the transforms of lines
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer
from torch_max_backend.registry.lowerings import bind

aten = torch.ops.aten
prims = torch.ops.prims
own = torch.ops.torch_max_backend

Rule = Callable[[Writer, Any, Any, Any], Any]
Parts = tuple[Any, Any]

rules: dict[OpOverload, Rule] = {}


class NotTaken(Exception):
    """A rule does not take these arguments; the message is the reason."""


def rule(*targets: OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what becomes of an operator: a function of the writer and of the arguments by their
    names in the schema, complex tensors as ``Complex``, others as ``Real``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        code = function.__code__
        names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        for target in targets:

            def called(w: Writer, node: Any, args: Any, kwargs: Any, op: Any = target) -> Any:
                bound = bind(op, args, kwargs)
                return function(w, **{k: v for k, v in bound.items() if k in names})

            rules[target] = called
        return function

    return decorate


def parts(value: Any) -> Parts:
    """The planes of a tensor, or the parts of a number."""
    if isinstance(value, Complex):
        return value.planes
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def _negative(a: Any) -> Any:
    return None if a is None else -a


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b + a if not isinstance(a, Real) else a + b


def _minus(a: Any, b: Any) -> Any:
    if b is None:
        return a
    return -b if a is None else a - b


def _times(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    return b * a if not isinstance(a, Real) else a * b


def _product(a: Parts, b: Parts, times: Callable[[Any, Any], Any] = _times) -> Parts:
    return (
        _minus(times(a[0], b[0]), _zero_or(times, a[1], b[1])),
        _plus(_zero_or(times, a[0], b[1]), _zero_or(times, a[1], b[0])),
    )


def _zero_or(times: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    return None if a is None or b is None else times(a, b)


def _cast(value: Any, dtype: torch.dtype) -> Parts:
    """Planes of the real dtype that belongs to a complex one; numbers as they are."""
    real = dtype.to_real()
    re, im = (p.to(real) if isinstance(p, Real) else p for p in parts(value))
    return re, im


def _where(w: Writer, condition: Real, a: Any, b: Any) -> Real:
    like = a if isinstance(a, Real) else b
    if not isinstance(like, Real):
        like = condition.filled(0, dtype=w.dtype.to_real())
    a, b = (v if isinstance(v, Real) else _scalar(w, v, like) for v in (a, b))
    return w(aten.where.self, condition, a, b)


def _scalar(w: Writer, number: Any, like: Real) -> Real:
    return w(aten.scalar_tensor.default, number, dtype=like.dtype, device=like.value.device)


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
        planes = []
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
        return w.complex(*planes, w.dtype)

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
    return Complex(w, tuple(like.filled(v or 0, dtype=dtype, **settings) for v in (re, im)))


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
        return move(_logical_or(w, _nonzero(w, re), _nonzero(w, im)))
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


# Arithmetic.


@rule(aten.add.Tensor, aten.add.Scalar)
def _add(w: Writer, self: Any, other: Any, alpha: Any) -> Complex:
    a, b = _cast(self, w.dtype), _scaled(_cast(other, w.dtype), alpha)
    return w.complex(_plus(a[0], b[0]), _plus(a[1], b[1]), w.dtype)


@rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(w: Writer, self: Any, other: Any, alpha: Any) -> Complex:
    a, b = _cast(self, w.dtype), _scaled(_cast(other, w.dtype), alpha)
    return w.complex(_minus(a[0], b[0]), _minus(a[1], b[1]), w.dtype)


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(w: Writer, self: Any, other: Any, alpha: Any) -> Complex:
    return _sub(w, other, self, alpha)


def _scaled(a: Parts, alpha: Any) -> Parts:
    return a if alpha == 1 else _product(a, parts(alpha))


@rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(w: Writer, self: Any, other: Any) -> Complex:
    return w.complex(*_product(_cast(self, w.dtype), _cast(other, w.dtype)), w.dtype)


@rule(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, aten.true_divide.Scalar)
def _div(w: Writer, self: Any, other: Any) -> Complex:
    return w.complex(*_quotient(w, _cast(self, w.dtype), _cast(other, w.dtype)), w.dtype)


@rule(aten.reciprocal.default)
def _reciprocal(w: Writer, self: Complex) -> Complex:
    return w.complex(*_quotient(w, (1, None), self.planes), w.dtype)


def _quotient(w: Writer, a: Parts, b: Parts) -> Parts:
    """By R. L. Smith's algorithm ("Algorithm 116: complex division", 1962), as torch."""
    if b[1] is None:
        if not isinstance(b[0], Real):
            return a[0] / b[0], None if a[1] is None else a[1] / b[0]
        re = a[0] if isinstance(a[0], Real) else b[0].filled(a[0])
        return re / b[0], None if a[1] is None else _times(a[1], w(aten.reciprocal.default, b[0]))
    if not isinstance(b[0], Real):
        # A number.
        inverse = 1 / complex(*b) if complex(*b) != 0 else complex(math.nan, math.nan)
        return _product(a, (inverse.real, inverse.imag))
    c, d = b
    large = w(aten.abs.default, c).at_least(w(aten.abs.default, d))
    p, q = _where(w, large, c, d), _where(w, large, d, c)
    ratio = _where(w, p.equals(0), 0.0, q / p)
    scale = w(aten.reciprocal.default, p + q * ratio)
    x, y = a
    if y is None:
        re = _where(w, large, _times(x, scale), _times(x, ratio * scale))
        im = _where(w, large, _times(x, ratio * scale), _times(x, scale))
        return re, -im
    re = _where(w, large, _plus(x, _times(y, ratio)), _plus(_times(x, ratio), y))
    im = _where(w, large, _minus(y, _times(x, ratio)), _minus(_times(y, ratio), x))
    return re * scale, im * scale


@rule(aten.mm.default, aten.bmm.default)
def _mm(w: Writer, self: Any, mat2: Any) -> Complex:
    op = w.place.target
    return _matrix(w, op, self, mat2)


def _matrix(w: Writer, op: OpOverload, a: Any, b: Any) -> Complex:
    planes = _product(_cast(a, w.dtype), _cast(b, w.dtype), lambda x, y: w(op, x, y))
    return w.complex(*planes, w.dtype)


def _blended(w: Writer, op: OpOverload, c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Complex:
    return _summed(w, _matrix(w, op, a, b).planes, c, beta, alpha)


def _summed(w: Writer, product: Parts, c: Any, beta: Any, alpha: Any) -> Complex:
    scaled = _scaled(product, alpha)
    if beta == 0:
        return w.complex(*scaled, w.dtype)
    added = _scaled(_cast(c, w.dtype), beta)
    return w.complex(_plus(scaled[0], added[0]), _plus(scaled[1], added[1]), w.dtype)


@rule(aten.addmm.default)
def _addmm(w: Writer, self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Complex:
    return _blended(w, aten.mm.default, self, mat1, mat2, beta, alpha)


@rule(aten.baddbmm.default)
def _baddbmm(w: Writer, self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Complex:
    return _blended(w, aten.bmm.default, self, batch1, batch2, beta, alpha)


@rule(aten.addmv.default)
def _addmv(w: Writer, self: Any, mat: Any, vec: Any, beta: Any, alpha: Any) -> Complex:
    column = (
        w(aten.unsqueeze.default, vec, 1)
        if isinstance(vec, Real)
        else Complex(w, tuple(w(aten.unsqueeze.default, p, 1) for p in vec.planes))
    )
    product = _matrix(w, aten.mm.default, mat, column)
    row = tuple(w(aten.squeeze.dim, p, 1) for p in product.planes)
    return _summed(w, row, self, beta, alpha)


@rule(aten.var.correction)
def _var(w: Writer, self: Complex, dim: Any, correction: Any, keepdim: bool) -> Real:
    re, im = (
        w(aten.var.correction, p, dim, correction=correction, keepdim=keepdim) for p in self.planes
    )
    return re + im


# Comparison and truth.


@rule(aten.eq.Tensor, aten.eq.Scalar)
def _eq(w: Writer, self: Any, other: Any) -> Real:
    a, b = _together(self, other)
    return w(aten.logical_and.default, _same(a[0], b[0]), _same(a[1], b[1]))


@rule(aten.ne.Tensor, aten.ne.Scalar)
def _ne(w: Writer, self: Any, other: Any) -> Real:
    return w(aten.logical_not.default, _eq(w, self, other))


def _together(a: Any, b: Any) -> tuple[Parts, Parts]:
    real = [t.dtype for v in (a, b) for t in parts(v) if isinstance(t, Real)]
    wide = torch.float64 if torch.float64 in real else torch.float32
    planes = [
        tuple(p.to(wide) if isinstance(p, Real) else p or 0 for p in parts(v)) for v in (a, b)
    ]
    return planes[0], planes[1]


def _same(a: Any, b: Any) -> Real:
    return a.equals(b) if isinstance(a, Real) else b.equals(a)


def _nonzero(w: Writer, x: Any) -> Any:
    return None if x is None else w(aten.ne.Scalar, x, 0)


def _logical_or(w: Writer, a: Any, b: Any) -> Real:
    return a if b is None else w(aten.logical_or.default, a, b)


def _truth(w: Writer, x: Any) -> Real:
    re, im = parts(x)
    return _logical_or(w, _nonzero(w, re), _nonzero(w, im))


@rule(aten.logical_not.default)
def _logical_not(w: Writer, self: Complex) -> Real:
    return w(aten.logical_not.default, _truth(w, self))


@rule(aten.logical_and.default, aten.logical_xor.default, aten.logical_or.default)
def _logical(w: Writer, self: Any, other: Any) -> Real:
    return w(w.place.target, _truth(w, self), _truth(w, other))


@rule(aten.any.default)
def _any(w: Writer, self: Complex) -> Real:
    return w(aten.any.default, _truth(w, self))


@rule(aten.any.dim)
def _any_dim(w: Writer, self: Complex, dim: int, keepdim: bool) -> Real:
    return w(aten.any.dim, _truth(w, self), dim, keepdim)


@rule(aten.any.dims)
def _any_dims(w: Writer, self: Complex, dim: Any, keepdim: bool) -> Real:
    return w(aten.any.dims, _truth(w, self), dim, keepdim)


@rule(aten.isnan.default, aten.isinf.default)
def _is(w: Writer, self: Complex) -> Real:
    return w(aten.logical_or.default, *(w(w.place.target, p) for p in self.planes))


# Functions.


def _f(w: Writer, name: str, *args: Any) -> Real:
    return w(getattr(aten, name).default, *args)


def _magnitude(w: Writer, z: Parts) -> Real:
    return _f(w, "hypot", *z)


@rule(aten.abs.default)
def _abs(w: Writer, self: Complex) -> Real:
    return _magnitude(w, self.planes)


@rule(aten.angle.default)
def _angle(w: Writer, self: Complex) -> Real:
    return _f(w, "atan2", self.im, self.re)


@rule(aten.sgn.default)
def _sgn(w: Writer, self: Complex) -> Complex:
    size = _magnitude(w, self.planes)
    zero = size.equals(0)
    planes = (_where(w, zero, 0.0, p / size) for p in self.planes)
    return w.complex(*planes, w.dtype)


def _log_parts(w: Writer, z: Parts) -> Parts:
    """Near magnitude 1 the logarithm is that of 1 plus what is left, without cancellation."""
    a, b = (_f(w, "abs", p) for p in z)
    big, small = _f(w, "maximum", a, b), _f(w, "minimum", a, b)
    near = w(aten.logical_and.default, big.at_least(0.5), w(aten.le.Scalar, big, 2.0))
    exact = _f(w, "log1p", (big - 1.0) * (big + 1.0) + small * small) * 0.5
    return _where(w, near, exact, _f(w, "log", _magnitude(w, z))), _f(w, "atan2", z[1], z[0])


def _exp_parts(w: Writer, z: Parts) -> Parts:
    size = _f(w, "exp", z[0])
    real = z[1].equals(0)
    im = _where(w, real, z[1], size * _f(w, "sin", z[1]))
    return _where(w, real, size, size * _f(w, "cos", z[1])), im


@rule(aten.log.default)
def _log(w: Writer, self: Complex) -> Complex:
    return w.complex(*_log_parts(w, self.planes), w.dtype)


@rule(aten.log2.default)
def _log2(w: Writer, self: Complex) -> Complex:
    re, im = _log_parts(w, self.planes)
    return w.complex(re * (1 / math.log(2)), im * (1 / math.log(2)), w.dtype)


@rule(aten.log10.default)
def _log10(w: Writer, self: Complex) -> Complex:
    re, im = _log_parts(w, self.planes)
    return w.complex(re * (1 / math.log(10)), im * (1 / math.log(10)), w.dtype)


@rule(aten.exp.default)
def _exp(w: Writer, self: Complex) -> Complex:
    return w.complex(*_exp_parts(w, self.planes), w.dtype)


@rule(aten.exp2.default)
def _exp2(w: Writer, self: Complex) -> Complex:
    return w.complex(*_exp_parts(w, (self.re * math.log(2), self.im * math.log(2))), w.dtype)


@rule(aten.expm1.default)
def _expm1(w: Writer, self: Complex) -> Complex:
    """``expm1(a) cos b - 2 sin(b / 2)**2 + i exp(a) sin b``."""
    a, b = self.planes
    half = _f(w, "sin", b * 0.5)
    re = _f(w, "expm1", a) * _f(w, "cos", b) - half * half * 2.0
    return w.complex(re, _f(w, "exp", a) * _f(w, "sin", b), w.dtype)


def _root(w: Writer, z: Parts) -> Parts:
    """The root with a real part that is not negative, without cancellation."""
    a, b = z
    # Halved first, so that the sum does not overflow.
    half = _f(w, "abs", a) * 0.5 + _magnitude(w, z) * 0.5
    t = _f(w, "sqrt", half)
    zero = t.equals(0)
    other = _where(w, zero, _f(w, "abs", b), _f(w, "abs", b) / (t + t))
    right = a.at_least(0)
    size = _where(w, right, other, t)
    # The sign of a zero counts as well.
    angle = _f(w, "atan2", b, a.filled(1))
    below = w(aten.lt.Scalar, w(aten.reciprocal.default, angle), 0)
    return _where(w, right, t, other), _where(w, below, -size, size)


@rule(aten.sqrt.default)
def _sqrt(w: Writer, self: Complex) -> Complex:
    return w.complex(*_root(w, self.planes), w.dtype)


@rule(aten.rsqrt.default)
def _rsqrt(w: Writer, self: Complex) -> Complex:
    return w.complex(*_quotient(w, (1, None), _root(w, self.planes)), w.dtype)


def _hyperbolic(w: Writer, z: Parts) -> tuple[Real, Real, Real, Real]:
    a, b = z
    return _f(w, "sinh", a), _f(w, "cosh", a), _f(w, "sin", b), _f(w, "cos", b)


@rule(aten.sinh.default)
def _sinh(w: Writer, self: Complex) -> Complex:
    sinh, cosh, sin, cos = _hyperbolic(w, self.planes)
    return w.complex(sinh * cos, cosh * sin, w.dtype)


@rule(aten.cosh.default)
def _cosh(w: Writer, self: Complex) -> Complex:
    sinh, cosh, sin, cos = _hyperbolic(w, self.planes)
    return w.complex(cosh * cos, sinh * sin, w.dtype)


@rule(aten.sin.default)
def _sin(w: Writer, self: Complex) -> Complex:
    sinh, cosh, sin, cos = _hyperbolic(w, (self.im, self.re))
    return w.complex(sin * cosh, cos * sinh, w.dtype)


@rule(aten.cos.default)
def _cos(w: Writer, self: Complex) -> Complex:
    sinh, cosh, sin, cos = _hyperbolic(w, (self.im, self.re))
    return w.complex(cos * cosh, -(sin * sinh), w.dtype)


def _tanh_parts(w: Writer, z: Parts) -> Parts:
    """``(sinh a cosh a + i sin b cos b) / (sinh(a)**2 + cos(b)**2)``."""
    # Beyond, the real part is 1 and the imaginary one as good as 0.
    most = 40.0 if z[0].dtype == torch.float32 else 300.0
    bounded = w(aten.clamp.default, z[0], -most, most)
    sinh, cosh, sin, cos = _hyperbolic(w, (bounded, z[1]))
    below = sinh * sinh + cos * cos
    return sinh * cosh / below, sin * cos / below


@rule(aten.tanh.default)
def _tanh(w: Writer, self: Complex) -> Complex:
    return w.complex(*_tanh_parts(w, self.planes), w.dtype)


@rule(aten.tan.default)
def _tan(w: Writer, self: Complex) -> Complex:
    """``-i tanh(i z)``."""
    re, im = _tanh_parts(w, (-self.im, self.re))
    return w.complex(im, -re, w.dtype)


@rule(aten.sigmoid.default)
def _sigmoid(w: Writer, self: Complex) -> Complex:
    return w.complex(*_logistic(w, self.planes), w.dtype)


@rule(aten.silu.default)
def _silu(w: Writer, self: Complex) -> Complex:
    return w.complex(*_product(self.planes, _logistic(w, self.planes)), w.dtype)


def _logistic(w: Writer, z: Parts) -> Parts:
    re, im = _exp_parts(w, (-z[0], -z[1]))
    return _quotient(w, (1, None), (re + 1.0, im))


@rule(aten.pow.Tensor_Scalar)
def _pow_scalar(w: Writer, self: Any, exponent: Any) -> Complex:
    return _power(w, _cast(self, w.dtype), parts(exponent))


@rule(aten.pow.Tensor_Tensor)
def _pow_tensor(w: Writer, self: Any, exponent: Any) -> Complex:
    return _power(w, _cast(self, w.dtype), _cast(exponent, w.dtype))


@rule(aten.pow.Scalar)
def _pow_of_scalar(w: Writer, self: Any, exponent: Any) -> Complex:
    like = exponent.re.to(w.dtype.to_real())
    re, im = (like.filled(v or 0) for v in parts(self))
    return _power(w, (re, im), _cast(exponent, w.dtype))


def _power(w: Writer, z: Parts, e: Parts) -> Complex:
    if not isinstance(e[0], Real) and not e[1] and e[0] in (0, 0.5, 1, 2, 3, -1, -0.5, -2):
        if z[1] is None:
            z = (z[0], z[0].filled(0))
        return w.complex(*_small_power(w, z, abs(e[0]), e[0] < 0), w.dtype)
    # float32 would lose what the exponent multiplies.
    z, e = (tuple(p.to(torch.float64) if isinstance(p, Real) else p for p in v) for v in (z, e))
    re, im = z
    z = re, im if isinstance(im, Real) else re.filled(im or 0)
    exponent = _product(_log_parts(w, z), e)
    power = _exp_parts(w, (exponent[0], exponent[1]))
    zero = w(aten.logical_and.default, z[0].equals(0), z[1].equals(0))
    # 0 to the power of 0 is 1.
    er, ei = (0.0 if v is None else v for v in e)
    if isinstance(er, Real):
        none = er.equals(0)
        if isinstance(ei, Real):
            none = w(aten.logical_and.default, none, ei.equals(0))
        at_zero: Any = none.to(torch.float64)
    else:
        at_zero = 1.0 if er == 0 and ei == 0 else 0.0
    return w.complex(_where(w, zero, at_zero, power[0]), _where(w, zero, 0.0, power[1]), w.dtype)


def _small_power(w: Writer, z: Parts, size: float, inverse: bool) -> Parts:
    if size == 0:
        return z[0].filled(1), None
    if size == 0.5:
        result = _root(w, z)
    else:
        result = z
        for _ in range(int(size) - 1):
            result = _product(result, z)
    return _quotient(w, (1, None), result) if inverse else result


# Fourier transforms.


def _swapped(w: Writer, x: Real, dim: int, last: int) -> Real:
    return x if dim == last else w(aten.transpose.int, x, dim, last)


def _along(w: Writer, pairs: Real, dims: Any, normalization: int, forward: bool) -> Real:
    last = pairs.value.dim() - 2
    for dim in dims:
        at = dim % (last + 1)
        lines = _swapped(w, pairs, at, last)
        lines = w(own.fft_c2c.default, lines, normalization, forward)
        pairs = _swapped(w, lines, at, last)
    return pairs


@rule(aten._fft_c2c.default)
def _fft_c2c(w: Writer, self: Complex, dim: Any, normalization: int, forward: bool) -> Complex:
    return w.of_pairs(_along(w, self.pairs, reversed(dim), normalization, forward))


@rule(aten._fft_r2c.default)
def _fft_r2c(w: Writer, self: Real, dim: Any, normalization: int, onesided: bool) -> Complex:
    last = self.value.dim() - 1
    at = dim[-1] % (last + 1)
    lines = _swapped(w, self, at, last)
    pairs = w(own.fft_r2c.default, lines, normalization, onesided)
    pairs = _swapped(w, pairs, at, last)
    return w.of_pairs(_along(w, pairs, reversed(dim[:-1]), normalization, True))


@rule(aten._fft_c2r.default)
def _fft_c2r(w: Writer, self: Complex, dim: Any, normalization: int, last_dim_size: Any) -> Real:
    pairs = _along(w, self.pairs, dim[:-1], normalization, False)
    last = pairs.value.dim() - 2
    at = dim[-1] % (last + 1)
    lines = _swapped(w, pairs, at, last)
    return _swapped(w, w(own.fft_c2r.default, lines, normalization, last_dim_size), at, last)
