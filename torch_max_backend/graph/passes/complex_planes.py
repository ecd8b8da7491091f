"""Arithmetic of planes of complex numbers.

An operand without imaginary part has ``None`` for it. A product with such an operand is not the
full one, so an infinite part does not make the other one NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_max_backend.graph.passes.complex_registry import aten
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer

Parts = tuple[Any, Any]


def parts(value: Any) -> Parts:
    """The planes of a tensor, or the parts of a number."""
    if isinstance(value, Complex):
        return value.planes
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def _negative(a: Any) -> Any:
    return None if a is None else -a


def plus(a: Any, b: Any) -> Any:
    """The sum of planes; ``None`` is a plane of zeros."""
    if a is None or b is None:
        return b if a is None else a
    return b + a if not isinstance(a, Real) else a + b


def minus(a: Any, b: Any) -> Any:
    """The difference of planes; ``None`` is a plane of zeros."""
    if b is None:
        return a
    return -b if a is None else a - b


def times(a: Any, b: Any) -> Any:
    """The product of planes; ``None`` is a plane of zeros."""
    if a is None or b is None:
        return None
    return b * a if not isinstance(a, Real) else a * b


def product(a: Parts, b: Parts, multiply: Callable[[Any, Any], Any] = times) -> Parts:
    """The product of complex numbers ``(real, imaginary)``, by some product of planes."""
    return (
        minus(multiply(a[0], b[0]), _zero_or(multiply, a[1], b[1])),
        plus(_zero_or(multiply, a[0], b[1]), _zero_or(multiply, a[1], b[0])),
    )


def _zero_or(multiply: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    return None if a is None or b is None else multiply(a, b)


def cast(value: Any, dtype: torch.dtype) -> Parts:
    """Planes of the real dtype that belongs to a complex one; numbers as they are."""
    real = dtype.to_real()
    re, im = (p.to(real) if isinstance(p, Real) else p for p in parts(value))
    return re, im


def where(w: Writer, condition: Real, a: Any, b: Any) -> Real:
    """Planes of ``a`` where a condition is true, else of ``b``."""
    like = a if isinstance(a, Real) else b
    if not isinstance(like, Real):
        like = condition.filled(0, dtype=w.dtype.to_real())
    a, b = (v if isinstance(v, Real) else _scalar(w, v, like) for v in (a, b))
    return w(aten.where.self, condition, a, b)


def _scalar(w: Writer, number: Any, like: Real) -> Real:
    return w(aten.scalar_tensor.default, number, dtype=like.dtype, device=like.value.device)
