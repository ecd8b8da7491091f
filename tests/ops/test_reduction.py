"""Reductions of sizes beyond torch's samples: long lines, many lines, lines beside each other."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.engines.steps.fused_cases import compile_programs
from tests.engines.steps.plans import traced
from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

NAN, INF = float("nan"), float("inf")


def _spoiled(x: torch.Tensor) -> torch.Tensor:
    """NaN in the middle of one line, infinities in others."""
    x = x.clone()
    flat = x.reshape(x.shape[0], -1)
    flat[0, flat.shape[1] // 2] = NAN
    flat[-1, -1] = INF
    flat[-2] = -INF
    return x


def _along(dim: int) -> Any:
    def reduced(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(dim), x.mean(dim), x.amax(dim), x.amin(dim), x.argmax(dim), x.argmin(dim),
            x.var(dim), (x * 0.001 + 1).prod(dim), x.softmax(dim), x.log_softmax(dim),
        )  # fmt: skip

    return reduced


def _whole(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sum(), x.mean(), x.max(), x.min(), x.argmax(), (x > 3).any(), (x > -9).all()


def _integers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x * 2**62).sum(0), x.prod(1), x.amax(0), x.amin(1), x.argmax(1), x.argmin(0)


def _shared(a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Complex multiplication by sums, which MAX's compiler did not survive."""
    c, d = x[0].sum(0), x[1].sum(0)
    return c * a[0] - d * a[1], a[0] * d + a[1] * c


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CASES: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "one long line": (_whole, [_x(300_001)]),
    "long lines": (_along(1), [_x(3, 100_003)]),
    "long lines beside each other": (_along(0), [_x(30_001, 21)]),
    "many lines": (_along(1), [_x(2_001, 77)]),
    "lines in the middle": (_along(1), [_x(3, 301, 133)]),
    "lines of one": (_along(1), [_x(7, 1)]),
    "doubles": (_along(0), [_x(513, 67).double()]),
    "spoiled": (_along(1), [_spoiled(_x(5, 5_000))]),
    "spoiled, beside each other": (_along(0), [_spoiled(_x(700, 40))]),
    "integers": (_integers, [torch.arange(-3_000, 3_000).reshape(60, 100)]),
    "shared": (_shared, [_x(2, 4), _x(2, 5, 4)]),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("reduction", weight=3)
@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-4, equal_nan=True)


@compile_group("reduction", weight=3)
def test_long_sums_are_as_exact_as_torchs() -> None:
    program = _programs()["one long line"]
    given = program.tensors[0].abs()
    program.tensors = [given]
    exact = given.double().sum()
    assert abs(program.run()[0] - exact) <= 4 * abs(given.sum() - exact) + exact * 1e-7


PRECISE: dict[str, Any] = {
    "sum": lambda x: x.sum(0),
    "sum of gradients": lambda x: x.flatten(2).sum((0, 2)),
    "batch norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "logcumsumexp": lambda x: x.flatten().logcumsumexp(0),
    "cumprod": lambda x: (1 + (x.flatten() - 3) / 100).cumprod(0),
}


@pytest.mark.parametrize("name", PRECISE)
def test_sums_of_many_lines_are_as_near_as_torchs(name: str) -> None:
    function = PRECISE[name]
    x = _x(480, 16, 4) * 0.01 + 3
    truth = function(x.double())
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="max", options={"engine": "steps", "min_ops": 1})

    def error(result: torch.Tensor) -> float:
        return float((result - truth).norm() / truth.norm())

    assert error(compiled(x)) <= 1.6 * error(function(x)) + 2e-8


HALVES = [(3, 1025), (5, 49, 37), (2, 9, 8), (7, 1)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_softmax_of_16_bits_is_rounded_once(dtype: torch.dtype) -> None:
    given = [_x(*shape).to(dtype) for shape in HALVES]
    given.append(_spoiled(given[0]))

    def softmaxes(*given: torch.Tensor) -> list[torch.Tensor]:
        return [y for x in given for y in (x.softmax(1), x.log_softmax(1))]

    exact = softmaxes(*(x.double() for x in given))
    for ours, wanted in zip(traced(softmaxes, given)[1]([*given]), exact, strict=True):
        assert ours.dtype == dtype
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(ours.double(), wanted, rtol=eps, atol=1e-7, equal_nan=True)


def _scaled(*given: torch.Tensor) -> list[torch.Tensor]:
    return [y for x in given for y in (x * 0.3 + 1, (x * 0.3 + 1).relu())]


def _fused(dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What a compiled program computes, and what torch does."""
    given = [_x(*shape).to(dtype) for shape in HALVES]
    _, executable = traced(_scaled, given, fuse=True)
    return executable([*given]), _scaled(*given)


def fuse_programs() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        _fused(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_programs_of_16_bits_round_as_torch_does(dtype: torch.dtype) -> None:
    compile_programs()
    for ours, theirs in zip(*_fused(dtype), strict=True):
        assert torch.equal(ours, theirs)
