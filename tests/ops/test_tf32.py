"""Products of float32 on units that round operands to TF32. The kernel runs on CPU here."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engines.steps.libraries.cases import row_of, run
from torch_max_backend.engines.steps.shells import Instance


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """What a unit for TF32 makes of float32: the low 13 bits are lost."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def _parts(x: torch.Tensor, *, right: bool, inner: bool) -> torch.Tensor:
    """A matrix ``[R, C]`` as ``[R, 3 C]`` with ``inner``, or else ``[3 R, C]``."""
    rows, columns = x.shape
    made = torch.empty((rows, 3, columns) if inner else (3, rows, columns))
    settings = {"right": right, "inner": inner}
    kernel = Instance.of("tmb_tf32_operand", settings, [("float32", 3), ("float32", 2)])
    assert run([row_of(kernel, made, x)]) == (-1, "")
    return made.reshape((rows, 3 * columns) if inner else (3 * rows, columns))


def _matrix(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(6, 8) * torch.logspace(-20, 20, 48).reshape(6, 8)


@pytest.mark.parametrize("inner", [False, True], ids=["outer", "inner"])
def test_the_unit_loses_nothing_of_the_parts(inner: bool) -> None:
    x = _matrix(0)
    for right in (False, True):
        made = _parts(x, right=right, inner=inner)
        assert torch.equal(_rounded(made), made)
        first, second, third = made.chunk(3, 1 if inner else 0)
        kept, rest = (first, second) if right else (first, third)
        torch.testing.assert_close(kept + rest, x, rtol=2**-22, atol=0)
        assert torch.equal(kept, third if right else second)


def test_a_product_is_of_float32() -> None:
    torch.manual_seed(1)
    a, b = torch.randn(6, 8), torch.randn(6, 8)
    exact = a.double() @ b.double().t()
    size = a.double().abs() @ b.double().abs().t()
    left, right = _parts(a, right=False, inner=True), _parts(b, right=True, inner=True)
    made = _rounded(left).double() @ _rounded(right).double().t()
    assert ((made - exact).abs() <= size * 2**-21).all()
    plain = _rounded(a).double() @ _rounded(b).double().t()
    assert ((plain - exact).abs() > size * 2**-14).any()


def test_numbers_that_are_not_finite() -> None:
    largest = torch.finfo(torch.float32).max
    a, b = torch.ones(6, 8), torch.full((6, 8), 2.0)
    a[:5, 0] = torch.tensor([math.inf, -math.inf, math.nan, largest, -largest])
    b[:, 0] = 0.5 + 2.0**-15
    made = _parts(a, right=False, inner=True) @ _parts(b, right=True, inner=True).t()
    torch.testing.assert_close(made, a @ b.t(), equal_nan=True, rtol=2**-21, atol=0)
