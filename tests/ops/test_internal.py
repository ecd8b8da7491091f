"""Operators that torch calls within others, and of which its operator database has no samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
torch.manual_seed(0)
SCORES, HIDDEN = torch.randn(2, 3, 4, 4), torch.rand(2, 3, 4, 4) > 0.5
HIDDEN[0, 0, 0] = True  # nothing is left of this row
SPOILED = SCORES.clone()
SPOILED[1, 0, 1, 2], SPOILED[1, 1, 2, 0] = float("nan"), float("inf")
LEFT, RIGHT, ROW = torch.randn(3, 5), torch.randn(5, 4), torch.randn(4)
FLAGS = torch.tensor([[True, False], [True, True]])


def _masked(dim: int | None, kind: int | None) -> Callable[..., Any]:
    return lambda x, mask: aten._masked_softmax(x, mask, dim, kind)


CASES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "mask": (_masked(3, 2), [SCORES, HIDDEN]),
    "mask, another dim": (_masked(1, 2), [SCORES, HIDDEN]),
    "mask, spoiled": (_masked(None, None), [SPOILED, HIDDEN]),
    "mask of lengths": (_masked(3, 0), [SCORES, HIDDEN[0, 1]]),
    "mask of keys": (_masked(3, 1), [SCORES, HIDDEN[:, 0, 1]]),
    "mask, float64": (_masked(3, 2), [SCORES.double(), HIDDEN]),
    "relu": (lambda *a: aten._addmm_activation(*a), [ROW, LEFT, RIGHT]),
    "gelu": (lambda *a: aten._addmm_activation(*a, use_gelu=True), [ROW, LEFT, RIGHT]),
    "scaled": (
        lambda *a: aten._addmm_activation(*a, beta=0.5, alpha=2),
        [torch.randn(3, 4), LEFT, RIGHT],
    ),
    "all": (aten._is_all_true, [FLAGS]),
    "all of ones": (aten._is_all_true, [FLAGS[1]]),
    "all of none": (aten._is_all_true, [FLAGS[:, :0]]),
    "any": (aten._is_any_true, [FLAGS]),
    "any of zeros": (aten._is_any_true, [~FLAGS[1]]),
    "any of none": (aten._is_any_true, [FLAGS[:, :0]]),
    "length first": (
        lambda x, w, b: aten.conv_tbc(x, w, b, 1),
        [torch.randn(7, 2, 3), torch.randn(3, 3, 5), torch.randn(5)],
    ),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    programs = [Program(f"{case}-{kind}", *CASES[case], kind == "dynamic") for case, kind in RUNS]
    compile_together(programs)
    return {p.name: p for p in programs}


# torch has no shape function of a masked softmax for symbolic sizes.
RUNS = [(c, "static") for c in CASES] + [(c, "dynamic") for c in CASES if "mask" not in c]


@compile_group("internal operators")
@pytest.mark.parametrize(("case", "kind"), RUNS)
def test_values_are_torchs(case: str, kind: str) -> None:
    _programs()[f"{case}-{kind}"].assert_agrees(equal_nan=True)
