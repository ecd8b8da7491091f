"""Programs whose operands lie some elements apart: steps, coordinates of points, and the parts of
complex numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.engines.steps.fused_cases import compile_programs
from tests.engines.steps.plans import traced

# Lines of less than a vector, of some, and with a rest.
_SIZES = [(3, 4, 7), (2, 5, 64), (3, 3, 75)]


@pytest.mark.parametrize("sizes", _SIZES)
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.float32, torch.int64, torch.bfloat16]
)
def test_steps_are_read(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randint(-100, 100, (*sizes[:-1], 5 * sizes[-1] - 4), generator=chance).to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        # What is read last is the last of each line.
        return [x[..., :: -(-x.shape[-1] // sizes[-1])][..., : sizes[-1]] + 3] + [
            x[..., i : i + step * (sizes[-1] - 1) + 1 : step] * x[..., i : i + sizes[-1]]
            for step in (2, 3, 4)
            for i in (0, x.shape[-1] - step * (sizes[-1] - 1) - 1)
        ]

    _, executable = traced(function, [x])
    for found, expected in zip(executable([x]), function(x), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("sizes", _SIZES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32, torch.float64, torch.bfloat16])
def test_coordinates_are_written(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    """Nothing is written between them, and nothing past the last."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randint(-100, 100, sizes, generator=chance).to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        return [torch.stack([x + i for i in range(n)], -1) for n in (2, 3, 4, 5)]

    _, executable = traced(function, [x])
    for found, expected in zip(executable([x]), function(x), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("sizes", _SIZES)
def test_rotated_queries(sizes: tuple[int, ...]) -> None:
    """Results are written two elements apart, and nothing between them."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(*sizes, 2, generator=chance)
    angles = torch.randn(sizes[0], 1, sizes[2], 2, generator=chance)

    def function(x: Tensor, angles: Tensor) -> list[Tensor]:
        turned = torch.view_as_complex(x) * torch.view_as_complex(angles)
        return [torch.view_as_real(turned)]

    _, executable = traced(function, [x, angles])
    (found,) = executable([x, angles])
    torch.testing.assert_close(found, function(x, angles)[0])


_SHORT = (torch.bfloat16, torch.float16)
_COMPLEX = [(3, 5, 17), (2, 16, 40)]


def _shared_halves(x: Tensor, y: Tensor) -> list[Tensor]:
    """Pairs of several kinds: read whole, halves alone, broadcast, and from an odd position."""
    a, b = torch.view_as_complex(x), torch.view_as_complex(y[:, :1])
    odd = x.flatten()[1:-1].view(-1, 2)
    return [
        torch.view_as_real(a * b), torch.view_as_real(a.conj() + b), a.real + 1, b.imag * 2,
        torch.stack([odd[:, 1] + odd[:, 0], odd[:, 0]], -1), torch.stack([a.real, a.real], -1),
    ]  # fmt: skip


def _pairs(sizes: tuple[int, ...]) -> list[Tensor]:
    chance = torch.Generator().manual_seed(0)
    return [torch.randn(*sizes, 2, generator=chance) for _ in range(2)]


def _halves(x: Tensor) -> list[Tensor]:
    a, b = x.unbind(-1)
    return [torch.stack([a * b, a - b], -1), (x[..., 0] + 1) * x[..., 1]]


def fuse_programs() -> None:
    for sizes in _COMPLEX:
        traced(_shared_halves, _pairs(sizes), fuse=True)[1](_pairs(sizes))
    for dtype in _SHORT:
        x = _pairs((3, 16, 37))[0].to(dtype)
        traced(_halves, [x], fuse=True)[1]([x])


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("sizes", _COMPLEX)
def test_pairs(sizes: tuple[int, ...], fuse: bool) -> None:
    """Complex numbers are read and written as what holds both parts."""
    if fuse:
        compile_programs()
    inputs = _pairs(sizes)
    _, executable = traced(_shared_halves, inputs, fuse=fuse)
    torch.testing.assert_close(executable([*inputs]), _shared_halves(*inputs))


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("dtype", _SHORT)
def test_pairs_of_16_bits(dtype: torch.dtype, fuse: bool) -> None:
    if fuse:
        compile_programs()
    x = _pairs((3, 16, 37))[0].to(dtype)
    _, executable = traced(_halves, [x], fuse=fuse)
    torch.testing.assert_close(executable([x]), _halves(x), rtol=0, atol=0)


def test_pairs_that_are_overwritten() -> None:
    """Numbers that are turned where they lie, and swapped."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(9, 33, 2, generator=chance)

    def function(x: Tensor) -> list[Tensor]:
        a, b = x.unbind(-1)
        x.copy_(torch.stack([b * 2, a - b], -1))
        return [x + 1]

    given, expected = x.clone(), x.clone()
    _, executable = traced(function, [x])
    found = executable([given])
    torch.testing.assert_close(found, function(expected))
    torch.testing.assert_close(given, expected)
