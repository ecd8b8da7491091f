"""Fourier transforms of complex numbers."""

from __future__ import annotations

from typing import Any

import torch

import torch_max_backend.graph.decompositions.fft_operators  # noqa: F401  defines the transforms
from torch_max_backend.graph.passes.complex_registry import rule
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer

aten = torch.ops.aten
own = torch.ops.torch_max_backend


def _swapped(w: Writer, x: Real, dim: int, last: int) -> Real:
    return x if dim == last else w(aten.transpose.int, x, dim, last)


def _along(w: Writer, pairs: Real, dims: Any, normalization: int, forward: bool) -> Real:
    last = pairs.value.dim() - 2
    for dim in dims:
        at = dim % (last + 1)
        lines = _swapped(w, pairs, at, last)
        lines = w(own.fft_c2c.default, lines, normalization, forward)
        pairs = _swapped(w, lines, at, last)
    return pairs


@rule(aten._fft_c2c.default)
def _fft_c2c(w: Writer, self: Complex, dim: Any, normalization: int, forward: bool) -> Complex:
    return w.of_pairs(_along(w, self.pairs, reversed(dim), normalization, forward))


@rule(aten._fft_r2c.default)
def _fft_r2c(w: Writer, self: Real, dim: Any, normalization: int, onesided: bool) -> Complex:
    last = self.value.dim() - 1
    at = dim[-1] % (last + 1)
    lines = _swapped(w, self, at, last)
    pairs = w(own.fft_r2c.default, lines, normalization, onesided)
    pairs = _swapped(w, pairs, at, last)
    return w.of_pairs(_along(w, pairs, reversed(dim[:-1]), normalization, True))


@rule(aten._fft_c2r.default)
def _fft_c2r(w: Writer, self: Complex, dim: Any, normalization: int, last_dim_size: Any) -> Real:
    pairs = _along(w, self.pairs, dim[:-1], normalization, False)
    last = pairs.value.dim() - 2
    at = dim[-1] % (last + 1)
    lines = _swapped(w, pairs, at, last)
    return _swapped(w, w(own.fft_c2r.default, lines, normalization, last_dim_size), at, last)
