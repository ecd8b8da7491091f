"""NaN, infinities and the ends of the ranges: where MAX's own operators are not torch's."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

_NAN, _INF = float("nan"), float("inf")
_VALUES = [_NAN, _INF, -_INF, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 88.5, 89.0, -104.0, 1e30, 1e-30]

_UNARY = {
    "acos": torch.acos,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "elu": F.elu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "isfinite": torch.isfinite,
    "itself_equal": lambda x: x == x,
    "itself_minus": lambda x: x - x,
    "itself_unequal": lambda x: x != x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softshrink": F.softshrink,
    "tanh": torch.tanh,
    "to_bool": lambda x: x.bool(),
    "zero_over": lambda x: 0 / x,
    "zero_times": lambda x: x * 0,
    "zeros_times": lambda x: x * torch.zeros_like(x),
}
_BINARY = {
    "atan2": torch.atan2,
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "hypot": torch.hypot,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "ne": torch.ne,
    "pow": torch.pow,
    "remainder": torch.remainder,
}


@cache
def _program(kind: str, dtype: torch.dtype) -> Program:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    values = torch.tensor(_VALUES, dtype=dtype)
    if kind == "unary":
        # Enough values for vector code and its tail.
        program = Program(kind, lambda x: [f(x) for f in _UNARY.values()], [values.repeat(5)])
    else:
        a, b = values.repeat_interleave(len(_VALUES)), values.repeat(len(_VALUES))
        # Eager's remainders are exact up to quotients of 2**53.
        quotient = (a.double() / b.double()).abs()
        sane = ~((quotient > 2.0**53) & quotient.isfinite())
        a, b = a[sane], b[sane]
        program = Program(kind, lambda x, y: [f(x, y) for f in _BINARY.values()], [a, b])
    compile_together([program])
    return program


_CASES = [
    pytest.param("unary", name, marks=compile_group("special_unary", 2)) for name in _UNARY
] + [pytest.param("binary", name, marks=compile_group("special_binary", 2)) for name in _BINARY]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("kind", "name"), _CASES)
def test_special_values_are_torchs(kind: str, name: str, dtype: torch.dtype) -> None:
    program = _program(kind, dtype)
    position = list(_UNARY if kind == "unary" else _BINARY).index(name)
    actual, expected = program.run()[position], program.eager()[position]
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=2e-6, atol=1e-37)
    if name in ("floor_divide", "fmod", "remainder"):
        zero = expected == 0
        assert torch.equal(actual[zero].signbit(), expected[zero].signbit())
