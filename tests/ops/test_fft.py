"""Fourier transforms: the kernel's radices, and what torch cannot trace from its own samples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import traced
from tests.support.beside_eager import assert_as_eager
from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

# Powers, products and primes; primes above 127 go through a convolution.
LENGTHS = (
    1, 2, 3, 4, 5, 8, 9, 14, 15, 16, 45, 49, 56, 60, 61, 127, 128, 146, 256, 262, 272, 480, 509,
    625, 1000, 1024, 2048,
)  # fmt: skip
# Several lines at a time, and one.
LINES = (33, 1)


def _every_transform(x: Tensor) -> list[Tensor]:
    n = x.shape[-1]
    z = torch.complex(x, x.flip(-1))
    half = torch.fft.rfft(x, norm="ortho")
    return [
        torch.fft.fft(z), torch.fft.ifft(z), torch.fft.fft(x, norm="forward"), half,
        torch.fft.irfft(z[..., : n // 2 + 1], n=n), torch.fft.ihfft(x),
    ]  # fmt: skip


def _exact(x: Tensor) -> list[Tensor]:
    """The same by numpy: torch's own of float64, by MKL on some processors, are 50 units off."""
    real = x.double().numpy()
    n = real.shape[-1]
    z = real + 1j * np.flip(real, -1)
    found = [
        np.fft.fft(z), np.fft.ifft(z), np.fft.fft(real, norm="forward"),
        np.fft.rfft(real, norm="ortho"), np.fft.irfft(z[..., : n // 2 + 1], n=n),
        np.fft.ihfft(real),
    ]  # fmt: skip
    return [torch.from_numpy(a) for a in found]


def _spectrum(x: Tensor) -> Tensor:
    window = torch.hann_window(16, dtype=x.dtype)
    return torch.stft(x, 16, 4, window=window, return_complex=True)


def _middle(x: Tensor) -> Tensor:
    return torch.fft.irfftn(torch.fft.rfftn(x, dim=(2, 0)), dim=(0, 2), s=(4, 6))


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import both_ways

    torch.manual_seed(0)
    cases = {
        "transforms": (_every_transform, [torch.randn(33, 9)]),
        "transforms_f64": (_every_transform, [torch.randn(33, 9, dtype=torch.float64)]),
        "stft": (_spectrum, [torch.randn(3, 50)]),
        "middle": (_middle, [torch.randn(4, 3, 6, 2)]),
    }
    return both_ways(cases)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("name", ["transforms", "transforms_f64", "stft", "middle"])
@compile_group("transforms", 2)
def test_agrees_with_eager(name: str, kind: str) -> None:
    from tests.conformance.closeness import difference
    from tests.conformance.reference import truth

    program = _programs()[f"{name}-{kind}"]
    assert difference(program.run(), program.eager(), truth(program)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("length", LENGTHS)
@compile_group("transforms", 2)
def test_lengths(length: int, lines: int, dtype: torch.dtype) -> None:
    """Within twice the error of torch's own transforms, or a few units in the last place."""
    name = "transforms" if dtype == torch.float32 else "transforms_f64"
    program = _programs()[f"{name}-dynamic"]
    if program.error is not None:
        raise program.error
    torch.manual_seed(length)
    x = torch.randn(lines, length, dtype=dtype)
    for ours, theirs, exact in zip(
        program.executable([x.clone()]),
        _every_transform(x),
        _exact(x),
        strict=True,
    ):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        unit = 4 * torch.finfo(dtype).eps * exact.abs().max()
        assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + unit


# Powers, with a convolution, of few columns; some, and so many that each stays in the caches.
_IMAGES = [(2, 16, 40), (1, 67, 19), (3, 5, 6, 4), (9, 16, 40), (8, 67, 19), (4, 2, 33, 2)]


@pytest.mark.parametrize("shape", _IMAGES)
def test_transforms_of_images(shape: tuple[int, ...]) -> None:
    """Along columns, without copies; and of real numbers, which mirror half of the result."""
    chance = torch.Generator().manual_seed(0)
    dims = tuple(range(1, len(shape)))

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        z = torch.complex(x, y)
        found = [
            torch.fft.fftn(x, dim=dims), torch.fft.fftn(z, dim=dims), torch.fft.fft(x, dim=0),
            torch.fft.ifftn(x, dim=dims), torch.fft.ifft(z, dim=1, norm="ortho"),
            torch.fft.rfftn(x, dim=dims),
        ]  # fmt: skip
        half = torch.fft.irfftn(z, s=[shape[d] for d in dims], dim=dims)
        return [*map(torch.view_as_real, found), half]

    for dtype in (torch.float32, torch.float64):
        inputs = [torch.randn(shape, dtype=dtype, generator=chance) for _ in range(2)]
        _, executable = traced(function, inputs)
        unit = torch.finfo(dtype).eps
        for ours, theirs in zip(executable(list(inputs)), function(*inputs), strict=True):
            assert (ours - theirs).abs().max() <= 32 * unit * theirs.abs().max()


@pytest.mark.parametrize("shape", [(3, 16), (2, 15), (2, 1), (2, 2), (2, 6, 9), (2, 7, 20)])
def test_gradients_of_real_transforms(shape: tuple[int, ...]) -> None:
    """They are the real parts of transforms of which half is zero."""
    dims = tuple(range(1, len(shape)))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for norm in ("backward", "ortho", "forward"):
        for which in (torch.fft.rfftn, torch.fft.fftn):
            assert_as_eager(
                lambda x, norm=norm, which=which: torch.view_as_real(which(x, dim=dims, norm=norm)),
                x,
            )


def test_real_parts_of_other_slices() -> None:
    """What is no first half of a line is transformed whole."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 2, generator=chance)

    def function(x: Tensor) -> list[Tensor]:
        z, part = torch.zeros(3, 8, dtype=torch.complex64), torch.view_as_complex(x)
        slices = [
            torch.slice_scatter(z, part, 1, 3), torch.slice_scatter(z, part[:, :4], 1, 0, 8, 2),
            torch.slice_scatter(z[:, :5], part), torch.slice_scatter(z, part, 1, 0, 5),
        ]  # fmt: skip
        return [torch.fft.ifft(s, dim=1).real.clone() for s in slices]

    _, executable = traced(function, [x])
    torch.testing.assert_close(executable([x]), function(x))
