"""Fourier transforms."""

import torch

from tests.conformance.entry import Entry

_REAL = (torch.float32, torch.float64, torch.int64)
_ANY = (torch.complex64, torch.float32, torch.complex128, torch.float64, torch.int64)

ENTRIES = [
    *(Entry(f"fft.{name}{dims}", _ANY) for name in ("fft", "ifft") for dims in ("", "2", "n")),
    *(Entry(f"fft.{name}{dims}", _REAL) for name in ("rfft", "ihfft") for dims in ("", "2", "n")),
    *(Entry(f"fft.{name}{dims}", _ANY) for name in ("irfft", "hfft") for dims in ("", "2", "n")),
    Entry("fft.fftshift", _ANY),
    Entry("fft.ifftshift", _ANY),
]
