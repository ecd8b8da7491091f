"""Operators of this package's own for Fourier transforms along the last dimension, or on CPU the
last two, with complex numbers as pairs of real ones (real part first) in a dimension behind it.

``normalization`` is ATen's: 0 leaves the sum, 1 divides by the root of the length, 2 by the length;
``dims`` is along how many of the last dimensions.
"""

from __future__ import annotations

import torch

aten = torch.ops.aten

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define("fft_c2c(Tensor pairs, int normalization, bool forward, int dims=1) -> Tensor")
_library.define("fft_c2c_columns(Tensor pairs, int dim, int normalization, bool forward) -> Tensor")
_library.define("fft_c2c_real(Tensor pairs, int normalization, int dims=1) -> Tensor")
_library.define("fft_r2c(Tensor self, int normalization, bool onesided, int dims=1) -> Tensor")
_library.define("fft_c2r(Tensor pairs, int normalization, SymInt size, int dims=1) -> Tensor")


def _last(x: torch.Tensor, dims: int) -> list[int]:
    return list(range(x.dim() - dims, x.dim()))


def _fft_c2c(pairs: torch.Tensor, normalization: int, forward: bool, dims: int = 1) -> torch.Tensor:
    """``[..., n, 2]`` to ``[..., n, 2]``."""
    x = torch.view_as_complex(pairs.contiguous())
    y = aten._fft_c2c(x, _last(x, dims), normalization, forward)
    return torch.view_as_real(y).contiguous()


def _fft_c2c_columns(
    pairs: torch.Tensor, dim: int, normalization: int, forward: bool
) -> torch.Tensor:
    """Along another dimension than the last, without copies to lines."""
    x = torch.view_as_complex(pairs.contiguous())
    y = aten._fft_c2c(x, [dim], normalization, forward)
    return torch.view_as_real(y).contiguous()


def _fft_c2c_real(pairs: torch.Tensor, normalization: int, dims: int = 1) -> torch.Tensor:
    """``[..., n, 2]`` to ``[..., n]``, the real parts of the inverse transform."""
    return _fft_c2c(pairs, normalization, False, dims).select(-1, 0).contiguous()


def _fft_r2c(self: torch.Tensor, normalization: int, onesided: bool, dims: int = 1) -> torch.Tensor:
    """``[..., n]`` to ``[..., n, 2]``, or to ``[..., n // 2 + 1, 2]``: the others mirror these."""
    y = aten._fft_r2c(self, _last(self, dims), normalization, onesided)
    return torch.view_as_real(y).contiguous()


def _fft_c2r(pairs: torch.Tensor, normalization: int, size: int, dims: int = 1) -> torch.Tensor:
    """``[..., size // 2 + 1, 2]`` to ``[..., size]``."""
    x = torch.view_as_complex(pairs.contiguous())
    return aten._fft_c2r(x, _last(x, dims), normalization, size).contiguous()


_library.impl("fft_c2c", _fft_c2c, "CompositeExplicitAutograd")
_library.impl("fft_c2c_columns", _fft_c2c_columns, "CompositeExplicitAutograd")
_library.impl("fft_c2c_real", _fft_c2c_real, "CompositeExplicitAutograd")
_library.impl("fft_r2c", _fft_r2c, "CompositeExplicitAutograd")
_library.impl("fft_c2r", _fft_c2r, "CompositeExplicitAutograd")
