"""Fourier transforms: the kernel's radices, and what torch cannot trace from its own samples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

# Powers, products and primes; primes above 61 go through a convolution.
LENGTHS = (1, 2, 3, 4, 5, 8, 9, 14, 15, 16, 45, 49, 60, 61, 67, 122, 134, 256, 509, 625, 1000, 1024)
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
