"""Operators of torch's backward graphs, called as AOTAutograd calls them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.together import Program

aten = torch.ops.aten

# Input, weight, stride, padding, dilation, transposed, output padding, groups.
CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 4, 9, 8), (6, 4, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "strided": ((2, 4, 9, 8), (6, 4, 3, 2), [2, 3], [1, 0], [1, 2], False, [0, 0], 1),
    "grouped": ((2, 4, 9, 8), (6, 2, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 2),
    "depthwise": ((2, 4, 9, 8), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    "transposed": ((2, 4, 5, 6), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    "transposed grouped": ((2, 4, 5, 6), (4, 3, 2, 2), [2, 1], [0, 1], [1, 1], True, [0, 0], 2),
    "line": ((2, 4, 11), (6, 4, 3), [2], [1], [1], False, [0], 1),
    "volume": ((1, 2, 4, 5, 6), (4, 2, 2, 2, 2), [1, 2, 1], [0, 1, 0], [1] * 3, False, [0] * 3, 1),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    torch.manual_seed(0)
    cases = {}
    for name, (input_size, weight_size, *settings, groups) in CONVOLUTIONS.items():
        x, w = torch.randn(input_size), torch.randn(weight_size)
        grad = torch.randn_like(aten.convolution(x, w, None, *settings, groups))
        channels = [grad.shape[1]]

        def function(
            grad: torch.Tensor,
            x: torch.Tensor,
            w: torch.Tensor = w,  # as a parameter's, its sizes are never symbolic
            settings: list[Any] = [*settings, groups],  # noqa: B006
            channels: list[int] = channels,
        ) -> Any:
            return aten.convolution_backward(grad, x, w, channels, *settings, [True] * 3)

        cases[name] = (function, [grad, x])
    return by_turns(cases)


@compile_group("gradients", weight=3)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    _programs()[name].assert_agrees()
