"""Products with weights of few bits, beside eager's and beside what they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torch_max_backend.ops  # noqa: F401  lowerings
from torch_max_backend.driver.passes import prepare
from torch_max_backend.engines.steps.plan_text import text_of
from torch_max_backend.engines.steps.planned import planned

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


@pytest.mark.parametrize(
    ("dtype", "kind", "form"),
    [
        (torch.float32, torch.int8, "above"),
        (torch.bfloat16, torch.int8, "biased"),
        (torch.bfloat16, torch.float8_e4m3fn, "below"),
        (torch.float16, torch.float8_e5m2, "above"),
        (torch.float32, torch.float8_e4m3fn, "biased"),
    ],
)
def test_a_dequantized_weight_is_not_written(
    dtype: torch.dtype, kind: torch.dtype, form: str
) -> None:
    torch.manual_seed(0)
    rows, inner, columns = 7, 72, 88

    def layer(x, weight, scale, bias):  # type: ignore[no-untyped-def]
        if form == "below":
            return torch.mm(x, (weight.t().float() * scale.t()).to(x.dtype))
        wide = (weight.to(x.dtype) * scale).t()
        return torch.mm(x, wide) if form == "above" else torch.addmm(bias, x, wide)

    x = torch.randn(rows, inner).to(dtype)
    weight = (40 * torch.randn(columns, inner)).to(kind)
    scale = torch.rand(columns, 1)
    scale = scale if form == "below" else scale.to(dtype)
    bias = torch.randn(columns).to(dtype)
    traced = make_fx(lambda *given: [layer(*given)])(x, weight, scale, bias)
    steps = text_of(planned(prepare(traced)))
    assert "tmb_scaled_matmul" in steps
    assert len(steps.splitlines()) <= 3, steps
    exact = x.double() @ (weight.double() * scale.double()).T
    exact = exact + bias.double() if form == "biased" else exact
    _close(_compiled(layer)(x, weight, scale, bias), exact)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.float32, torch.float8_e4m3fn),
        (torch.bfloat16, torch.float8_e5m2),
    ],
)
def test_casts_of_float8(dtype: torch.dtype, kind: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(kind)
    wide = _compiled(lambda x: x.to(dtype) + 0)
    torch.testing.assert_close(wide(every), every.to(dtype), rtol=0, atol=0, equal_nan=True)
    # Numbers of float8, what lies half between neighbours, and either side of that.
    numbers = every.to(torch.float32)
    numbers = numbers[numbers.isfinite()].sort().values
    middles = (numbers[1:] + numbers[:-1]) / 2
    away = torch.tensor([480.0, 464.0, 465.0, 61440.0, 61439.0, 1e30, torch.inf, torch.nan, 1e-30])
    near = [middles, *(middles.nextafter(torch.full((), end)) for end in (-torch.inf, torch.inf))]
    x = torch.cat([*near, away, -away]).to(dtype)
    there_and_back = _compiled(lambda x: x.to(kind).to(torch.float32))
    expected = x.to(kind).to(torch.float32)
    torch.testing.assert_close(there_and_back(x), expected, rtol=0, atol=0, equal_nan=True)
    # Moved on the way, as bytes.
    moved = _compiled(lambda x: x.to(kind)[1::2].to(torch.float32))
    expected = x.to(kind)[1::2].to(torch.float32)
    torch.testing.assert_close(moved(x), expected, rtol=0, atol=0, equal_nan=True)


def test_what_is_not_done_with_float8_is_named() -> None:
    given = torch.randn(8).to(torch.float8_e4m3fn)
    with pytest.raises(Exception, match="float8_e4m3fn"):
        _compiled(lambda x: torch.stack([x, x]))(given)
