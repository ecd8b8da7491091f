"""Special functions, by ``mojo_kernels/elementwise/special.mojo``: none of them is in MAX."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.elementwise import elementwise
from torch_max_backend.ops.common.promotion import Operand, operands, opmath
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

# The kernel's name of each function of one tensor.
_FUNCTIONS = {
    "lgamma": "lgamma",
    "digamma": "digamma",
    "erfinv": "erfinv",
    "special_erfcx": "erfcx",
    "special_ndtri": "ndtri",
    "special_log_ndtr": "log_ndtr",
    "i0": "i0",
    "special_i0e": "i0e",
    "special_i1": "i1",
    "special_i1e": "i1e",
    "special_bessel_j0": "bessel_j0",
    "special_bessel_j1": "bessel_j1",
    "special_bessel_y0": "bessel_y0",
    "special_bessel_y1": "bessel_y1",
    "special_modified_bessel_i0": "i0",
    "special_modified_bessel_i1": "i1",
    "special_modified_bessel_k0": "k0",
    "special_modified_bessel_k1": "k1",
}
# Those whose argument is called x.
_FUNCTIONS_OF_X = {
    "special_scaled_modified_bessel_k0": "scaled_k0",
    "special_scaled_modified_bessel_k1": "scaled_k1",
    "special_spherical_bessel_j0": "spherical_bessel_j0",
    "special_airy_ai": "airy_ai",
}

_POLYNOMIALS = {
    "chebyshev_polynomial_t": "t",
    "chebyshev_polynomial_u": "u",
    "chebyshev_polynomial_v": "v",
    "chebyshev_polynomial_w": "w",
    "hermite_polynomial_h": "h",
    "hermite_polynomial_he": "he",
    "laguerre_polynomial_l": "l",
    "legendre_polynomial_p": "p",
}


def _of_one(x: TensorValue, kind: str) -> TensorValue:
    return elementwise("tmb_special", *operands(opmath(expected().dtype), x), kind=kind)


def _of_two(x: Operand, y: Operand, kind: str) -> TensorValue:
    pair = operands(opmath(expected().dtype), x, y)
    return elementwise("tmb_special_pair", *pair, kind=kind)


def _register(name: str, kind: str) -> None:
    def lowering(self: TensorValue) -> TensorValue:
        return _of_one(self, kind)

    def lowering_of_x(x: TensorValue) -> TensorValue:
        return _of_one(x, kind)

    chosen = lowering_of_x if name in _FUNCTIONS_OF_X else lowering
    chosen.__name__ = name
    chosen.__qualname__ = chosen.__qualname__.replace("lowering_of_x", name)
    chosen.__qualname__ = chosen.__qualname__.replace("lowering", name)
    chosen.__doc__ = str(getattr(aten, name).default._schema).removeprefix("aten::")
    map_to(getattr(aten, name).default, kernels="elementwise.special")(chosen)


def _register_polynomial(name: str, kind: str, shifted: bool) -> None:
    def lowering(x: Operand, n: Operand) -> TensorValue:
        pair = operands(opmath(expected().dtype), x, n)
        return elementwise("tmb_orthogonal_polynomial", *pair, kind=kind, shifted=shifted)

    lowering.__name__ = f"special_{name}"
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", f"special_{name}")
    lowering.__doc__ = f"special_{name}(Tensor x, Tensor n) -> Tensor"
    packet = getattr(aten, f"special_{name}")
    map_to(packet.default, packet.x_scalar, packet.n_scalar, kernels="elementwise.special")(
        lowering
    )


for _name, _kind in (_FUNCTIONS | _FUNCTIONS_OF_X).items():
    _register(_name, _kind)
for _name, _kind in _POLYNOMIALS.items():
    _register_polynomial(_name, _kind, shifted=False)
    if _name.startswith("chebyshev"):
        _register_polynomial(f"shifted_{_name}", _kind, shifted=True)


@map_to(aten.polygamma.default, kernels="elementwise.special")
def polygamma(n: int, self: TensorValue) -> TensorValue:
    """polygamma(int n, Tensor self) -> Tensor"""
    if n == 0:
        return _of_one(self, "digamma")
    order = ops.constant(n, DType.int64, DeviceRef.CPU())
    x = operands(opmath(expected().dtype), self)
    return elementwise("tmb_polygamma", *x, scalars=(order,))


@map_to(
    aten.special_zeta.default,
    aten.special_zeta.other_scalar,
    aten.special_zeta.self_scalar,
    kernels="elementwise.special",
)
def special_zeta(self: Operand, other: Operand) -> TensorValue:
    """special_zeta(Tensor self, Tensor other) -> Tensor"""
    return _of_two(self, other, "zeta")


@map_to(aten.igamma.default, kernels="elementwise.special")
def igamma(self: TensorValue, other: TensorValue) -> TensorValue:
    """igamma(Tensor self, Tensor other) -> Tensor"""
    return _of_two(self, other, "lower_gamma")


@map_to(aten.igammac.default, kernels="elementwise.special")
def igammac(self: TensorValue, other: TensorValue) -> TensorValue:
    """igammac(Tensor self, Tensor other) -> Tensor"""
    return _of_two(self, other, "upper_gamma")
