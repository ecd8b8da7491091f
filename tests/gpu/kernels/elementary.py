"""One element at a time."""

from __future__ import annotations

from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops


def elementary(x: TensorValue) -> list[TensorValue]:
    wide = ops.cast(x, DType.float64)
    number = ops.constant(2.5, DType.float64, DeviceRef.CPU())
    unary = ["exp2", "expm1", "log10", "tan", "sinc", "acos", "tanh", "asinh", "erfc", "mantissa"]
    calls = [("tmb_unary", [x], {"kind": kind}) for kind in unary]
    calls += [("tmb_unary", [wide], {"kind": kind}) for kind in ("sin", "atanh")]
    calls += [("tmb_binary", [x, x], {"kind": kind}) for kind in ("atan2", "hypot", "logaddexp")]
    calls += [
        ("tmb_binary_scalar", [v, number], {"kind": "pow", "first": False}) for v in (x, wide)
    ]
    results = [ops.custom(n, x.device, v, [v[0].type], settings)[0] for n, v, settings in calls]
    for name, dtype in (("tmb_exponent", DType.int32), ("tmb_sign_bit", DType.bool)):
        results += ops.custom(name, x.device, [x], [TensorType(dtype, x.shape, x.device)])
    return [r.tensor for r in results]


def special(x: TensorValue) -> list[TensorValue]:
    # One of each file of functions.
    results = []
    for kind in ("bessel_y0", "spherical_bessel_j0", "ndtri", "lgamma", "k1", "airy_ai"):
        results += ops.custom("tmb_special", x.device, [x], [x.type], {"kind": kind})
    for kind in ("zeta", "lower_gamma"):
        results += ops.custom("tmb_special_pair", x.device, [x, x], [x.type], {"kind": kind})
    for kind in ("w", "he"):
        settings = {"kind": kind, "shifted": True}
        results += ops.custom("tmb_orthogonal_polynomial", x.device, [x, x], [x.type], settings)
    order = ops.constant(2, DType.int64, DeviceRef.CPU())
    results += ops.custom("tmb_polygamma", x.device, [x, order], [x.type])
    return [r.tensor for r in results]


def integers(x: TensorValue) -> list[TensorValue]:
    whole = ops.cast(x, DType.int32)
    results = []
    for kind in ("and", "or", "xor", "left", "right", "gcd", "lcm"):
        settings = {"kind": kind}
        results += ops.custom("tmb_bits", x.device, [whole, whole], [whole.type], settings)
    for kind in ("floor", "trunc", "remainder", "fmod"):
        settings = {"kind": kind}
        pair = [whole, whole]
        results += ops.custom("tmb_integer_division", x.device, pair, [whole.type], settings)
    results += ops.custom("tmb_integer_power", x.device, [whole, whole], [whole.type])
    results += ops.custom("tmb_bits", x.device, [x, x], [x.type], {"kind": "next"})
    results += ops.custom("tmb_ldexp", x.device, [x, whole], [x.type])
    results += ops.custom("tmb_times_power_of_two", x.device, [x, x], [x.type])
    settings = {"floored": True}
    results += ops.custom("tmb_float_remainder", x.device, [x, x], [x.type], settings)
    return [r.tensor for r in results]


LIBRARIES = ("elementwise.unary", "elementwise.special", "elementwise.bits", "elementwise.division")
BUILDERS = (elementary, special, integers)
