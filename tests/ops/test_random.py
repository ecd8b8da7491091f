"""Random numbers: their distributions, and what tells one draw from another.

Each test sets torch's seed, so its numbers are the same in every run.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.ops.random_cases import (
    BOTH,
    CASES,
    INF,
    LAYERS,
    MANY,
    NAN,
    SPREAD,
    X,
    drawn,
    off,
    one,
    programs,
)
from tests.support.groups import compile_group

pytestmark = compile_group("random", weight=3)


def philox(key: int, counter: list[int]) -> list[int]:
    """Philox4x32-10, as in Salmon et al. 2011."""
    low, (a, b, c, d), k, h = 0xFFFFFFFF, counter, key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q & low, (p >> 32) ^ d ^ h, p & low
        k, h = (k + 0x9E3779B9) & low, (h + 0xBB67AE85) & low
    return [a, b, c, d]


def test_philox_known_answers() -> None:
    """The published vectors of Random123 (kat_vectors)."""
    known = [
        (0, [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (2**64 - 1, [2**32 - 1] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            0x299F31D0A4093822,
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for key, counter, words in known:
        assert philox(key, counter) == words


@pytest.mark.parametrize("seed", [0, -1, 0x299F31D0A4093822])
def test_words_are_philox_of_seed_and_element(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.engines.max import slots
    from torch_max_backend.engines.steps import run

    for module in (slots, run):
        monkeypatch.setattr(module, "draw", lambda device: torch.tensor(seed))
    words = one("randint_words").tolist()
    blocks = [philox(seed % (1 << 64), [block, 0, 0, 0]) for block in range(16)]
    assert words == [blocks[i % 16][i // 16] for i in range(64)]
    # Many tasks share the work; none of it depends on which.
    uniform = (one("rand", kind="static") * 2**24).long()
    for i in (0, 15, 16, 777, 50_000, MANY - 1):
        block = philox(seed % (1 << 64), [i // 64 * 16 + i % 16, 0, 0, 0])
        assert uniform[i].item() == block[i % 64 // 16] >> 8


@pytest.mark.parametrize("name", CASES)
def test_a_seed_gives_the_same_numbers_again(name: str) -> None:
    first, again = drawn(name, seed=3), drawn(name, seed=3)
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", BOTH)
def test_sizes_may_be_dynamic(name: str) -> None:
    for a, b in zip(drawn(name, 5, "static"), drawn(name, 5, "dynamic"), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("size", [0, 1, 5, 63, 64, 65, 1000])
def test_other_sizes_are_a_beginning_of_the_same_numbers(size: int) -> None:
    for name in ("rand", "randn", "rand64", "randn64", "randint", "randint_wide", "exponential"):
        assert torch.equal(one(name, given=[X[:size]]), one(name)[:size])
    assert sorted(one("randperm", given=[X[:size]]).tolist()) == list(range(size))


def test_the_state_advances() -> None:
    torch.manual_seed(0)
    program = programs()["rand-dynamic"]
    (first,), (second,) = program.run(), program.run()
    assert _agreement(first, second) == 0
    assert _agreement(one("rand", 0), one("rand", 1)) == 0
    # The state is torch's: what eager draws in between changes what follows.
    torch.manual_seed(0)
    torch.rand(1)
    assert _agreement(program.run()[0], first) == 0


def test_nodes_of_a_graph_are_independent() -> None:
    first, second = drawn("two")
    assert _agreement(first, second) == 0
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 4 / math.sqrt(MANY)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_layers_that_share_their_code_are_independent(kind: str) -> None:
    from torch_max_backend.engines.max.module import build_module

    trace = programs()[f"layers-{kind}"].trace
    assert trace is not None
    text = str(build_module([trace])[0].mlir_module)
    assert text.count("mo.call @") == LAYERS
    _, *masks = drawn("layers", kind=kind)
    for i, mask in enumerate(masks):
        assert off(mask.float().mean(), 0.5, mask.numel()) < 4
        for other in masks[:i]:
            same = (mask == other).float().mean()
            assert abs(same - 0.5) < 4 * 0.5 / math.sqrt(mask.numel())


def _agreement(a: Tensor, b: Tensor) -> float:
    """The share of equal numbers, less what chance explains."""
    return max(0.0, (a == b).double().mean().item() - 1e-4)


def test_dropout() -> None:
    x = SPREAD + 1
    y, mask = drawn("dropout")
    assert mask.dtype == torch.bool
    assert off(mask.double().mean(), 0.8, MANY) < 4
    torch.testing.assert_close(y, x * mask / 0.8, rtol=1e-6, atol=0)
    y, mask = drawn("dropout_all")
    assert not y.any()
    assert not mask.any()
    y, mask = drawn("dropout_none")
    assert torch.equal(y, x)
    assert mask.all()
    spoiled = torch.tensor([NAN, INF]).repeat(50)
    y, mask = drawn("dropout", given=[spoiled])
    assert torch.equal(y.isnan(), spoiled.isnan() | ~mask)


def test_whole_channels_are_dropped() -> None:
    planes = one("dropout2d").flatten(2)
    assert set(planes.unique().tolist()) == {0.0, 2.0}
    assert (planes == planes[..., :1]).all()
    assert off((planes[..., 0] / 2).mean(), 0.5, 6000) < 4


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 64)
        self.dropout = torch.nn.Dropout(0.5)
        self.down = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.dropout(self.up(x))
        return self.down(h), h


def test_training_uses_the_mask_of_forward() -> None:
    from torch_max_backend import max_backend

    torch.manual_seed(0)
    net = _Net()
    x = torch.randn(32, 16)
    compiled = torch.compile(net, backend=max_backend, fullgraph=True)

    def step(seed: int) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(seed)
        net.zero_grad()
        y, h = compiled(x)
        y.square().sum().backward()
        return h.detach(), [p.grad.clone() for p in net.parameters()]  # type: ignore[union-attr]

    h, gradients = step(1)
    mask = h != 0
    assert 0.4 < mask.double().mean() < 0.6
    net.zero_grad()
    dropped = net.up(x) * mask * 2
    torch.testing.assert_close(h, dropped.detach())
    net.down(dropped).square().sum().backward()
    for ours, parameter in zip(gradients, net.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-3)
    again, _ = step(1)
    other, _ = step(2)
    assert torch.equal(h, again)
    assert not torch.equal(mask, other != 0)


def test_generators_of_ones_own_are_refused() -> None:
    from tests.conformance.program import Program, trace_program
    from torch_max_backend import UnsupportedOperatorError

    generator = torch.Generator()
    for function in (
        lambda x: torch.bernoulli(x, 0.5, generator=generator),
        lambda x: torch.rand(3, generator=generator),
        lambda x: torch.randperm(3, generator=generator),
        lambda x: torch.multinomial(x, 2, generator=generator),
    ):
        with pytest.raises(UnsupportedOperatorError, match="explicit generator"):
            trace_program(Program("generator", function, [torch.rand(8)]))
