"""Products with weights of few bits, beside eager's and beside what they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torch_max_backend.ops  # noqa: F401  lowerings
from torch_max_backend.engines.steps.planned import planned
from torch_max_backend.engines.steps.text import text_of
from torch_max_backend.pipeline import prepare

aten = torch.ops.aten
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Rows of the left operand: of each way that the kernels have.
ROWS = (1, 3, 5, 60, 200)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options = {"engine": "steps", "fallback": "error", "min_ops": 1}
    return torch.compile(function, backend="max", options=options)


def _close(ours: torch.Tensor, exact: torch.Tensor) -> None:
    """As near as the rounding of one result is, beside the largest."""
    sums = 16 if ours.dtype == torch.float32 else 2
    near = sums * torch.finfo(ours.dtype).eps * exact.abs().max()
    assert ours.dtype in DTYPES
    assert (ours.double() - exact).abs().max() <= near


@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_weights(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    call = _compiled(lambda *given: aten._weight_int8pack_mm(*given))
    for rows in ROWS:
        x = torch.randn(rows, 70).to(dtype)
        weight = torch.randint(-128, 128, (90, 70), dtype=torch.int8)
        scales = (torch.rand(90) / 100).to(dtype)
        exact = x.double() @ weight.double().T * scales.double()
        _close(call(x, weight, scales), exact)


@pytest.mark.parametrize("columns", [64, 128 + 48])
@pytest.mark.parametrize("dtype", DTYPES)
def test_int4_weights(dtype: torch.dtype, columns: int) -> None:
    torch.manual_seed(0)
    group, inner = 32, 32 * 20
    call = _compiled(lambda *given: aten._weight_int4pack_mm_for_cpu(*given))
    for rows in ROWS:
        x = torch.randn(rows, inner).to(dtype)
        weight = torch.randint(0, 16, (columns, inner), dtype=torch.int32)
        packed = aten._convert_weight_to_int4pack_for_cpu(weight, 1)
        factors = torch.rand(inner // group, columns, 2).to(dtype)
        scale, zero = (factors[..., i].double().T.repeat_interleave(group, 1) for i in range(2))
        exact = x.double() @ ((weight - 8) * scale + zero).T
        _close(call(x, packed, group, factors), exact)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_widened_weight_is_not_written(dtype: torch.dtype, turned: bool) -> None:
    torch.manual_seed(0)

    def scaled(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, (weight.t() if turned else weight).to(x.dtype)) * scale

    x = torch.randn(7, 72).to(dtype)
    weight = torch.randint(-128, 128, (88, 72) if turned else (72, 88), dtype=torch.int8)
    scale = torch.rand(88).to(dtype)
    traced = make_fx(lambda *given: [scaled(*given)])(x, weight, scale)
    steps = text_of(planned(prepare(traced)))
    assert re.search(r"tmb_matmul.*int8", steps)
    assert "int8" not in re.sub(r"tmb_matmul.*", "", steps)
    exact = x.double() @ (weight.t() if turned else weight).double() * scale.double()
    _close(_compiled(scaled)(x, weight, scale), exact)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_integers(turned: bool, signed: bool) -> None:
    torch.manual_seed(0)
    kind, low = (torch.int8, -128) if signed else (torch.uint8, 0)
    call = _compiled(lambda a, b: aten._int_mm(a, b.t() if turned else b))
    for rows in (1, 17, 200):
        a = torch.randint(low, low + 256, (rows, 72), dtype=kind)
        b = torch.randint(-128, 128, (88, 72) if turned else (72, 88), dtype=torch.int8)
        exact = a.long() @ (b.t() if turned else b).long()
        torch.testing.assert_close(call(a, b), exact.int(), rtol=0, atol=0)
