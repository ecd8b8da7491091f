"""Trigonometric and hyperbolic functions that MAX lacks, from those it has.

Operands are float32 or float64. Errors are a few units in the last place.
"""

from __future__ import annotations

import math

from max.graph import TensorValue, ops

from torch_max_backend.ops.common.numerics import (
    acos,
    exp,
    expm1,
    maximum,
    minimum,
    negative,
    number,
    with_sign,
)


def tan(x: TensorValue) -> TensorValue:
    return ops.div(ops.sin(x), ops.cos(x))


def asin(x: TensorValue) -> TensorValue:
    estimate = ops.sub(number(math.pi / 2, x), acos(x))
    # Near 0 the difference has lost its digits: one Newton step on sin(y) = x brings them back.
    step = ops.div(ops.sub(ops.sin(estimate), x), ops.cos(estimate))
    small = ops.greater(number(0.5, x), ops.abs(x))
    return ops.where(small, ops.sub(estimate, step), estimate)


def atan(x: TensorValue) -> TensorValue:
    a, one = ops.abs(x), number(1, x)
    beyond = ops.greater(a, one)
    angle = _atan_to_one(ops.where(beyond, ops.div(one, a), a))
    angle = ops.where(beyond, ops.sub(number(math.pi / 2, x), angle), angle)
    return with_sign(angle, x)


def _atan_to_one(t: TensorValue) -> TensorValue:
    """Arc tangent of values in [0, 1]."""
    root = ops.rsqrt(ops.add(number(1, t), ops.mul(t, t)))
    estimate = ops.sub(number(math.pi / 2, t), acos(ops.mul(t, root)))
    # A Newton step on tan(y) = t.
    cosine = ops.cos(estimate)
    residue = ops.sub(ops.sin(estimate), ops.mul(t, cosine))
    return ops.sub(estimate, ops.mul(residue, cosine))


def atan2(y: TensorValue, x: TensorValue) -> TensorValue:
    a, b = ops.abs(y), ops.abs(x)
    large, small = maximum(a, b), minimum(a, b)
    ratio = ops.div(small, large)
    ratio = ops.where(ops.equal(small, large), number(1, x), ratio)
    ratio = ops.where(ops.equal(large, number(0, x)), large, ratio)
    angle = _atan_to_one(ratio)
    angle = ops.where(ops.greater(a, b), ops.sub(number(math.pi / 2, x), angle), angle)
    angle = ops.where(negative(x), ops.sub(number(math.pi, x), angle), angle)
    return ops.where(negative(y), ops.negate(angle), angle)


def sinh(x: TensorValue) -> TensorValue:
    a, half = ops.abs(x), number(0.5, x)
    e = expm1(a)
    near = ops.mul(half, ops.add(e, ops.div(e, ops.add(e, number(1, x)))))
    # Halves, because exp overflows before sinh does.
    root = exp(ops.mul(half, a))
    far = ops.mul(ops.mul(half, root), root)
    return with_sign(ops.where(ops.greater(number(20, x), a), near, far), x)


def cosh(x: TensorValue) -> TensorValue:
    half = number(0.5, x)
    root = exp(ops.mul(half, ops.abs(x)))
    return ops.add(ops.mul(ops.mul(half, root), root), ops.div(ops.div(half, root), root))


def asinh(x: TensorValue) -> TensorValue:
    a, one = ops.abs(x), number(1, x)
    square = ops.mul(a, a)
    root = ops.sqrt(ops.add(square, one))
    near = ops.log1p(ops.add(a, ops.div(square, ops.add(one, root))))
    return with_sign(_or_log_of_double(near, a), x)


def acosh(x: TensorValue) -> TensorValue:
    one = number(1, x)
    t = ops.sub(x, one)
    near = ops.log1p(ops.add(t, ops.sqrt(ops.mul(t, ops.add(x, one)))))
    inside = ops.greater_equal(x, one)
    return ops.where(inside, _or_log_of_double(near, x), number(math.nan, x))


def _or_log_of_double(near: TensorValue, a: TensorValue) -> TensorValue:
    """log(2a) where ``a`` is so large that its square may overflow, ``near`` elsewhere."""
    far = ops.add(ops.log(a), number(math.log(2), a))
    return ops.where(ops.greater(a, number(1e9, a)), far, near)
