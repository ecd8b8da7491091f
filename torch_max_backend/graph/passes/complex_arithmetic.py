"""Arithmetic of complex numbers, and comparisons."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.graph.passes.complex_planes import (
    Parts,
    cast,
    minus,
    parts,
    plus,
    product,
    times,
    where,
)
from torch_max_backend.graph.passes.complex_registry import rule
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer

aten = torch.ops.aten


# Arithmetic.


@rule(aten.add.Tensor, aten.add.Scalar)
def _add(w: Writer, self: Any, other: Any, alpha: Any) -> Complex:
    a, b = cast(self, w.dtype), _scaled(cast(other, w.dtype), alpha)
    return w.complex(plus(a[0], b[0]), plus(a[1], b[1]), w.dtype)


@rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(w: Writer, self: Any, other: Any, alpha: Any) -> Complex:
    a, b = cast(self, w.dtype), _scaled(cast(other, w.dtype), alpha)
    return w.complex(minus(a[0], b[0]), minus(a[1], b[1]), w.dtype)


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(w: Writer, self: Any, other: Any, alpha: Any) -> Complex:
    return _sub(w, other, self, alpha)


def _scaled(a: Parts, alpha: Any) -> Parts:
    return a if alpha == 1 else product(a, parts(alpha))


@rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(w: Writer, self: Any, other: Any) -> Complex:
    return w.complex(*product(cast(self, w.dtype), cast(other, w.dtype)), w.dtype)


@rule(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, aten.true_divide.Scalar)
def _div(w: Writer, self: Any, other: Any) -> Complex:
    return w.complex(*quotient(w, cast(self, w.dtype), cast(other, w.dtype)), w.dtype)


@rule(aten.reciprocal.default)
def _reciprocal(w: Writer, self: Complex) -> Complex:
    return w.complex(*quotient(w, (1, None), self.planes), w.dtype)


def quotient(w: Writer, a: Parts, b: Parts) -> Parts:
    """By R. L. Smith's algorithm ("Algorithm 116: complex division", 1962), as torch."""
    if b[1] is None:
        if not isinstance(b[0], Real):
            return a[0] / b[0], None if a[1] is None else a[1] / b[0]
        re = a[0] if isinstance(a[0], Real) else b[0].filled(a[0])
        return re / b[0], None if a[1] is None else times(a[1], w(aten.reciprocal.default, b[0]))
    if not isinstance(b[0], Real):
        # A number.
        inverse = 1 / complex(*b) if complex(*b) != 0 else complex(math.nan, math.nan)
        return product(a, (inverse.real, inverse.imag))
    c, d = b
    large = w(aten.abs.default, c).at_least(w(aten.abs.default, d))
    p, q = where(w, large, c, d), where(w, large, d, c)
    ratio = where(w, p.equals(0), 0.0, q / p)
    scale = w(aten.reciprocal.default, p + q * ratio)
    x, y = a
    if y is None:
        re = where(w, large, times(x, scale), times(x, ratio * scale))
        im = where(w, large, times(x, ratio * scale), times(x, scale))
        return re, -im
    re = where(w, large, plus(x, times(y, ratio)), plus(times(x, ratio), y))
    im = where(w, large, minus(y, times(x, ratio)), minus(times(y, ratio), x))
    return re * scale, im * scale


@rule(aten.mm.default, aten.bmm.default)
def _mm(w: Writer, self: Any, mat2: Any) -> Complex:
    op = w.place.target
    return _matrix(w, op, self, mat2)


def _matrix(w: Writer, op: OpOverload, a: Any, b: Any) -> Complex:
    planes = product(cast(a, w.dtype), cast(b, w.dtype), lambda x, y: w(op, x, y))
    return w.complex(*planes, w.dtype)


def _blended(w: Writer, op: OpOverload, c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Complex:
    return _summed(w, _matrix(w, op, a, b).planes, c, beta, alpha)


def _summed(w: Writer, made: Parts, c: Any, beta: Any, alpha: Any) -> Complex:
    scaled = _scaled(made, alpha)
    if beta == 0:
        return w.complex(*scaled, w.dtype)
    added = _scaled(cast(c, w.dtype), beta)
    return w.complex(plus(scaled[0], added[0]), plus(scaled[1], added[1]), w.dtype)


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
    re_a, im_a, re_b, im_b = (
        p.to(wide) if isinstance(p, Real) else p or 0 for v in (a, b) for p in parts(v)
    )
    return (re_a, im_a), (re_b, im_b)


def _same(a: Any, b: Any) -> Real:
    return a.equals(b) if isinstance(a, Real) else b.equals(a)


def nonzero(w: Writer, x: Any) -> Any:
    """Where a plane is not 0; ``None`` for a plane of zeros."""
    return None if x is None else w(aten.ne.Scalar, x, 0)


def logical_or(w: Writer, a: Any, b: Any) -> Real:
    """Where either is true; ``None`` is false everywhere."""
    return a if b is None else w(aten.logical_or.default, a, b)


def _truth(w: Writer, x: Any) -> Real:
    re, im = parts(x)
    return logical_or(w, nonzero(w, re), nonzero(w, im))


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
