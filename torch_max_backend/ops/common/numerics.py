"""Arithmetic that is torch's where MAX's is not: NaN, infinities, overflow, float64 accuracy.

The operands of these functions have one dtype, wide enough to compute in (no 16-bit floats).
"""

from __future__ import annotations

import math

from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected, has_own_functions
from torch_max_backend.ops.common import elementary
from torch_max_backend.ops.common.promotion import Number, constant

# MAX's float64 exp reduces its argument by multiples of 0.69314718055966295651, which is ln 2 but
# for this much.
_LN2_ERROR = 2.82352905643e-13


def number(value: Number, like: TensorValue) -> TensorValue:
    """A 0-d constant of the dtype and on the device of ``like``."""
    return constant(value, like.dtype, like.device)


def negate(x: TensorValue) -> TensorValue:
    """``-x``, wrapping around for unsigned integers, which MAX refuses to negate (it makes a
    negation of ``0 - x`` too)."""
    if x.dtype.is_float() or x.dtype.is_signed_integral():
        return ops.negate(x)
    return ops.add(ops.sub(number(-1, x), x), number(1, x))


def maximum(a: TensorValue, b: TensorValue) -> TensorValue:
    """Elementwise maximum; NaN wins. Both operands have one dtype, not bool."""
    if has_own_functions() or not a.dtype.is_float():
        return ops.max(a, b)
    return ops.where(ops.logical_or(ops.greater(a, b), ops.is_nan(a)), a, b)


def minimum(a: TensorValue, b: TensorValue) -> TensorValue:
    """Elementwise minimum; NaN wins. Both operands have one dtype, not bool."""
    if has_own_functions() or not a.dtype.is_float():
        return ops.min(a, b)
    return ops.where(ops.logical_or(ops.greater(b, a), ops.is_nan(a)), a, b)


def clamp(x: TensorValue, low: TensorValue | None, high: TensorValue | None) -> TensorValue:
    """``x`` within bounds that are not NaN; NaN stays, ``high`` wins over ``low``."""
    if low is not None:
        x = ops.where(ops.greater(low, x), low, x)
    if high is not None:
        x = ops.where(ops.greater(x, high), high, x)
    return x


def not_equal(a: TensorValue, b: TensorValue) -> TensorValue:
    """Elementwise ``!=``; true for NaN, where MAX's own says false."""
    return ops.logical_not(ops.equal(a, b))


def unless_nan(truth: TensorValue, x: TensorValue) -> TensorValue:
    """``truth`` of a comparison, false where ``x`` is NaN: MAX folds ``x == x`` to true."""
    return ops.logical_and(truth, ops.logical_not(ops.is_nan(x)))


def zero_times(x: TensorValue) -> TensorValue:
    """``x * 0`` and ``x - x``, which MAX folds to 0: NaN for NaN and infinities. Steps fold
    neither, and keep a zero's sign."""
    lost = ops.logical_or(ops.is_nan(x), ops.is_inf(x))
    return ops.where(lost, number(math.nan, x), number(0, x))


def zero_over(x: TensorValue) -> TensorValue:
    """``0 / x``, which MAX folds to 0: NaN for NaN and 0."""
    lost = ops.logical_or(ops.is_nan(x), ops.equal(x, number(0, x)))
    return ops.where(lost, number(math.nan, x), number(0, x))


def exp(x: TensorValue) -> TensorValue:
    """e to the ``x``. MAX's own turns NaN into infinity, and saturates below the overflow limit."""
    if has_own_functions():
        return ops.exp(x)
    limit = number(88 if x.dtype == DType.float32 else 708, x)
    large = ops.greater(x, limit)
    halved = ops.where(large, ops.mul(x, number(0.5, x)), x)
    root = ops.exp(halved)
    if x.dtype == DType.float64:
        root = ops.mul(root, _exp_correction(halved))
    result = ops.where(large, ops.mul(root, root), root)
    return ops.where(ops.is_nan(x), x, result)


def _exp_correction(x: TensorValue) -> TensorValue:
    bounded = clamp(x, number(-800, x), number(800, x))
    # Halves go up, as in MAX.
    steps = ops.floor(ops.add(ops.mul(bounded, number(1 / math.log(2), x)), number(0.5, x)))
    return ops.sub(number(1, x), ops.mul(steps, number(_LN2_ERROR, x)))


def expm1(x: TensorValue) -> TensorValue:
    """e to the ``x`` minus 1, accurate near 0: the error of exp cancels against log's argument."""
    if has_own_functions():
        return elementary.unary("expm1", x)
    one = number(1, x)
    u = exp(x)
    v = ops.sub(u, one)
    near = ops.div(ops.mul(v, x), ops.log(u))
    near = ops.where(ops.equal(u, one), x, near)
    return ops.where(ops.greater(one, ops.abs(x)), near, v)


def _is_wide_on_gpu(x: TensorValue) -> bool:
    """Whether float32 is asked for, and on a GPU, whose units for functions are made for less."""
    wide = x.dtype == expected().dtype == DType.float32
    return wide and not x.device.is_cpu()


def gelu(x: TensorValue, approximate: str) -> TensorValue:
    """GELU, with ``erf`` (``"none"``) or its approximation (``"tanh"``). As ``tanh``, for lowerings
    with ``kernels=elementary.kernels_on_gpu``."""
    if approximate == "none" or has_own_functions() or not _is_wide_on_gpu(x):
        return ops.gelu(x, approximate)
    cube = ops.mul(ops.mul(x, x), x)
    inner = ops.add(x, ops.mul(cube, number(0.044715, x)))
    root = tanh(ops.mul(inner, number(math.sqrt(2 / math.pi), x)))
    return ops.mul(ops.mul(x, number(0.5, x)), ops.add(root, number(1, x)))


def tanh(x: TensorValue) -> TensorValue:
    """Hyperbolic tangent; MAX's own turns NaN into 1, and NVIDIA's unit for it has 11 bits. For
    lowerings with ``kernels=elementary.kernels_on_gpu``."""
    if has_own_functions():
        return ops.tanh(x)
    if _is_wide_on_gpu(x):
        return elementary.unary("tanh", x)
    return ops.where(ops.is_nan(x), x, ops.tanh(x))


def sigmoid(x: TensorValue) -> TensorValue:
    """The logistic function; MAX's own turns NaN into 0."""
    if has_own_functions():
        return ops.sigmoid(x)
    if x.dtype == DType.float64:
        one = number(1, x)
        return ops.div(one, ops.add(one, exp(ops.negate(x))))
    return ops.where(ops.is_nan(x), x, ops.sigmoid(x))


def relu(x: TensorValue) -> TensorValue:
    """``max(x, 0)``; MAX's own turns NaN into 0."""
    if has_own_functions():
        return ops.relu(x)
    return clamp(x, number(0, x), None)
