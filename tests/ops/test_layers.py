"""Layers that torch has as one operator: an LSTM's, a transformer's, products of groups of rows."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _grouped(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return torch._grouped_mm(a, b, offs=ends)


def _turned(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return torch._grouped_mm(a, b.mT, offs=ends)


def _ends(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def _lstm(reverse: bool, biased: bool) -> Any:
    def layer(
        x: Tensor, ih: Tensor, hh: Tensor, bi: Tensor, bh: Tensor, h: Tensor, c: Tensor
    ) -> Any:
        found = aten.mkldnn_rnn_layer(
            x, ih, hh, bi, bh, h, c, reverse, [], 2, h.shape[2], 1, biased, False, False, False
        )
        return found[:3]

    return layer


def _layer(steps: int, batch: int, width: int, size: int) -> list[Tensor]:
    shapes = [(4 * size, width), (4 * size, size), (4 * size,), (4 * size,)]
    made = [_random(*s) / size**0.5 for s in shapes]
    return [_random(steps, batch, width), *made, *[_random(1, batch, size)] * 2]


def _encoder(gelu: bool, norm_first: bool, mask_type: int | None = None) -> Any:
    def layer(x: Tensor, *rest: Tensor) -> Tensor:
        parameters, mask = rest[:12], rest[12] if len(rest) > 12 else None
        return aten._transformer_encoder_layer_fwd(
            x, 16, 2, *parameters[:4], gelu, norm_first, 1e-5, *parameters[4:], mask, mask_type
        )

    return layer


def _encoded() -> list[Tensor]:
    """``[batch, length, width]`` and the weights of a layer: attention, norms, the rest."""
    shapes = [(48, 16), (48,), (16, 16), (16,), *[(16,)] * 4, (24, 16), (24,), (16, 24), (16,)]
    return [_random(2, 5, 16), *[_random(*s) / 4 for s in shapes]]


_LATER = torch.ones(5, 5, dtype=torch.bool).triu(1)
_ENDS = torch.arange(5) >= torch.tensor([[5], [3]])

CASES: dict[str, tuple[Any, list[Tensor]]] = {
    "groups": (_grouped, [_random(12, 16), _random(4, 16, 24), _ends(3, 3, 10, 12)]),
    "groups of a large product": (
        _turned,
        [_random(300, 96), _random(3, 112, 96), _ends(1, 260, 300)],
    ),
    "half precision": (
        _turned,
        [_random(40, 64).bfloat16(), _random(2, 1040, 64).bfloat16(), _ends(7, 40)],
    ),
    "lstm": (_lstm(False, True), _layer(5, 3, 7, 20)),
    "lstm backwards": (_lstm(True, False), _layer(4, 1, 6, 8)),
    "lstm of a large product": (_lstm(False, True), _layer(3, 32, 40, 200)),
    "encoder": (_encoder(True, False), _encoded()),
    "encoder, causal": (_encoder(False, True, 0), [*_encoded(), _LATER]),
    "encoder, padded": (_encoder(False, False, 1), [*_encoded(), _ENDS]),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("layers", weight=3)
@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        assert ours.dtype == theirs.dtype
        close = 1e-2 if ours.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


@compile_group("layers", weight=3)
@pytest.mark.parametrize("ends", [(3, 2, 10, 12), (3, 3, 10, 13), (-1, 3, 10, 12)])
def test_groups_that_are_none_raise(ends: tuple[int, ...]) -> None:
    from torch_max_backend import ExecutionError

    program = _programs()["groups"]
    assert program.executable is not None
    a, b, _ = (t.clone() for t in CASES["groups"][1])
    with pytest.raises(ExecutionError, match="offsets"):
        program.executable([a, b, _ends(*ends)])


def test_experts_of_transformers_are_taken() -> None:
    import transformers.integrations.moe  # noqa: F401  defines the operator

    from torch_max_backend import explain

    def experts(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        return torch.ops.transformers.grouped_mm_fallback(a, b, ends).relu() + 1

    found = explain(experts, *CASES["groups"][1], options={"cache": False, "fallback": "eager"})
    assert found.lowered == 1
