"""Sums beside each other, of what a program computes: in one pass over memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engines.steps.fused_cases import compile_programs
from tests.engines.steps.plans import kinds, traced


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0]))


Case = tuple[Callable[..., list[Tensor]], list[Tensor], str | None]
CASES: dict[str, Case] = {
    "a gradient beside its sums": (
        lambda g, x, w: [(g * x).sum(0), g * w],
        [_x(1576, 96), _x(1577, 96)[1:], _x(96)],
        "mul mul sum",
    ),
    "over several dims": (
        lambda g, x: [(g * x).sum((0, 1))], [_x(7, 33, 192), _x(7, 33, 192)], "mul sum"
    ),
    "in the middle": (lambda g, x: [(g * x).sum(1)], [_x(7, 333, 40), _x(7, 333, 40)], "mul sum"),
    "two sums": (
        lambda g, x: [(g * x).sum(0), (g + x).sum(0)], [_x(99, 96), _x(99, 96)], "mul sum add sum"
    ),
    "of rows, and beside each other": (
        lambda g, x: [(g * x).sum(0), (g * x).sum(1), (g + x).sum((0, 1))],
        [_x(64, 200), _x(64, 200)],
        None,
    ),
    "of rows and columns": (
        lambda g, x, r: [(g * x * r).sum(0)], [_x(500, 72), _x(500, 72), _x(500, 1)], "mul mul sum"
    ),
    "just enough": (lambda g, x: [(g * x).sum(0)], [_x(128, 16), _x(128, 16)], "mul sum"),
    "none": (lambda g, x: [(g * x).sum(0)], [_x(0, 16), _x(0, 16)], None),
    "half as wide": (
        lambda g, x: [(g * x).sum(0)],
        [_x(300, 250).bfloat16(), _x(300, 250).bfloat16()],
        "mul sum",
    ),
}  # fmt: skip


def fuse_programs() -> None:
    for function, inputs, _ in CASES.values():
        traced(function, inputs, fuse=True)[1]([*inputs])


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, threads: int, fuse: bool) -> None:
    if fuse:
        compile_programs()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        function, inputs, program = CASES[case]
        plan, executable = traced(function, inputs, fuse=fuse)
        names = [n for step in kinds(plan) for n in step.split() if n != "cast"]
        assert program is None or names == program.split(), "one program"
        results = zip(executable([*inputs]), function(*inputs), strict=True)
        truth = function(*[x.double() for x in inputs])
        for (found, theirs), exact in zip(results, truth, strict=True):
            assert found.dtype == theirs.dtype
            error = float((found.double() - exact).abs().max())
            unit = 2 * torch.finfo(found.dtype).eps * max(1.0, float(exact.abs().max()))
            assert error <= 1.5 * float((theirs.double() - exact).abs().max()) + unit
    finally:
        torch.set_num_threads(before)


def test_what_is_not_computed_by_a_program_keeps_its_kernel() -> None:
    plan, _ = traced(lambda x: [x.sum(0), (x @ x).sum(0)], [_x(64, 64)])
    assert kinds(plan)["tmb_reduce"] == 2


@pytest.mark.parametrize("shape", [(999, 5), (50, 256), (4, 32)])
def test_few_and_many_columns_and_few_rows_keep_their_kernel(shape: tuple[int, ...]) -> None:
    plan, executable = traced(lambda x: [(x * x).sum(0)], [_x(*shape)])
    assert kinds(plan) == Counter({"mul": 1, "tmb_reduce": 1})
    torch.testing.assert_close(executable([_x(*shape)]), [_x(*shape).square().sum(0)])


def test_sizes_that_vary() -> None:
    def function(g: Tensor, x: Tensor) -> list[Tensor]:
        return [(g * x).sum((0, 1)), g + x]

    _, executable = traced(function, [_x(3, 40, 96), _x(3, 40, 96)], dynamic=True)
    for rows in (3, 40, 7):
        inputs = [_x(rows, rows, 96), _x(rows + 1, rows, 96)[1:]]
        torch.testing.assert_close(executable([*inputs]), function(*inputs), rtol=1e-5, atol=1e-4)
