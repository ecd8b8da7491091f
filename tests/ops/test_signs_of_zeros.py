"""Zeros have torch's signs on steps, and what is not finite stays so."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.conformance.program import Program

X = torch.tensor([1.0, -1.0, 0.0, -0.0, math.inf, -math.inf, math.nan])
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "times zero": lambda x: x * 0.0,
    "times minus zero": lambda x: x * -0.0,
    "zero times": lambda x: 0.0 * x,
    "times zeros": lambda x: x * torch.zeros(7),
    "minus itself": lambda x: x - x,
    "zero over": lambda x: 0 / x,
    "zeros over": lambda x: torch.zeros(7) / x,
    "over minus zero": lambda x: x / -0.0,
    "zero minus": lambda x: 0.0 - x,
    "zeros minus": lambda x: torch.zeros(7) - x,
    "minus zero plus": lambda x: -0.0 + x,
    "zero or": lambda x: torch.where(x > 0, x, 0.0),
    "minus zero or": lambda x: torch.where(x > 0, x, -0.0),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.steps import plan_together

    programs = {name: Program(name, function, [X]) for name, function in CASES.items()}
    plan_together(list(programs.values()))
    return programs


@pytest.mark.parametrize("name", CASES)
def test_signs_are_torchs(name: str) -> None:
    (ours,), theirs = _programs()[name].run(), CASES[name](X)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    known = ~theirs.isnan()
    assert torch.equal(ours.signbit()[known], theirs.signbit()[known])
