"""Functions of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_max_backend.graph.passes.complex_arithmetic import quotient
from torch_max_backend.graph.passes.complex_planes import Parts, cast, parts, product, where
from torch_max_backend.graph.passes.complex_registry import rule
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer

aten = torch.ops.aten


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
    re, im = (where(w, zero, 0.0, p / size) for p in self.planes)
    return w.complex(re, im, w.dtype)


def _log_parts(w: Writer, z: Parts) -> Parts:
    """Near magnitude 1 the logarithm is that of 1 plus what is left, without cancellation."""
    a, b = (_f(w, "abs", p) for p in z)
    big, small = _f(w, "maximum", a, b), _f(w, "minimum", a, b)
    near = w(aten.logical_and.default, big.at_least(0.5), w(aten.le.Scalar, big, 2.0))
    exact = _f(w, "log1p", (big - 1.0) * (big + 1.0) + small * small) * 0.5
    return where(w, near, exact, _f(w, "log", _magnitude(w, z))), _f(w, "atan2", z[1], z[0])


def _exp_parts(w: Writer, z: Parts) -> Parts:
    size = _f(w, "exp", z[0])
    real = z[1].equals(0)
    im = where(w, real, z[1], size * _f(w, "sin", z[1]))
    return where(w, real, size, size * _f(w, "cos", z[1])), im


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
    other = where(w, zero, _f(w, "abs", b), _f(w, "abs", b) / (t + t))
    right = a.at_least(0)
    size = where(w, right, other, t)
    # The sign of a zero counts as well.
    angle = _f(w, "atan2", b, a.filled(1))
    below = w(aten.lt.Scalar, w(aten.reciprocal.default, angle), 0)
    return where(w, right, t, other), where(w, below, -size, size)


@rule(aten.sqrt.default)
def _sqrt(w: Writer, self: Complex) -> Complex:
    return w.complex(*_root(w, self.planes), w.dtype)


@rule(aten.rsqrt.default)
def _rsqrt(w: Writer, self: Complex) -> Complex:
    return w.complex(*quotient(w, (1, None), _root(w, self.planes)), w.dtype)


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
    return w.complex(*product(self.planes, _logistic(w, self.planes)), w.dtype)


def _logistic(w: Writer, z: Parts) -> Parts:
    re, im = _exp_parts(w, (-z[0], -z[1]))
    return quotient(w, (1, None), (re + 1.0, im))


@rule(aten.pow.Tensor_Scalar)
def _pow_scalar(w: Writer, self: Any, exponent: Any) -> Complex:
    return _power(w, cast(self, w.dtype), parts(exponent))


@rule(aten.pow.Tensor_Tensor)
def _pow_tensor(w: Writer, self: Any, exponent: Any) -> Complex:
    return _power(w, cast(self, w.dtype), cast(exponent, w.dtype))


@rule(aten.pow.Scalar)
def _pow_of_scalar(w: Writer, self: Any, exponent: Any) -> Complex:
    like = exponent.re.to(w.dtype.to_real())
    re, im = (like.filled(v or 0) for v in parts(self))
    return _power(w, (re, im), cast(exponent, w.dtype))


def _power(w: Writer, z: Parts, e: Parts) -> Complex:
    if not isinstance(e[0], Real) and not e[1] and e[0] in (0, 0.5, 1, 2, 3, -1, -0.5, -2):
        if z[1] is None:
            z = (z[0], z[0].filled(0))
        return w.complex(*_small_power(w, z, abs(e[0]), e[0] < 0), w.dtype)
    # float32 would lose what the exponent multiplies.
    re, im, re_e, im_e = (
        p.to(torch.float64) if isinstance(p, Real) else p for v in (z, e) for p in v
    )
    e = re_e, im_e
    z = re, im if isinstance(im, Real) else re.filled(im or 0)
    exponent = product(_log_parts(w, z), e)
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
    return w.complex(where(w, zero, at_zero, power[0]), where(w, zero, 0.0, power[1]), w.dtype)


def _small_power(w: Writer, z: Parts, size: float, inverse: bool) -> Parts:
    if size == 0:
        return z[0].filled(1), None
    if size == 0.5:
        result = _root(w, z)
    else:
        result = z
        for _ in range(int(size) - 1):
            result = product(result, z)
    return quotient(w, (1, None), result) if inverse else result
