"""Fourier transforms of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

import torch_max_backend.graph.decompositions.fft_operators  # noqa: F401  defines the transforms
from torch_max_backend.graph.passes.complex_registry import rule
from torch_max_backend.graph.passes.complex_values import Complex, Real, Writer

aten = torch.ops.aten
own = torch.ops.torch_max_backend


# Longer columns than this are copied to lines: what is computed beside each other would leave the
# second-level cache.
_LONGEST_COLUMN = 4096
# Numbers of an image that is transformed along both axes in one go, and images that are worth it.
_LARGEST_IMAGE, _IMAGES = 65536, 8


def _swapped(w: Writer, x: Real, dim: int, last: int) -> Real:
    return x if dim == last else w(aten.transpose.int, x, dim, last)


def _are_images(value: torch.Tensor, dims: Any, rank: int) -> bool:
    """Whether a transform along some dims is one of images that fit in the caches: along the last
    two of ``rank`` dims."""
    *others, height, width = (1, *value.shape[:rank]) if rank > 1 else (1, 0, 0)
    if value.device.type != "cpu" or not {rank - 2, rank - 1} <= {d % rank for d in dims}:
        return False
    if not all(isinstance(n, int) for n in value.shape):
        return False
    return 1 < height * width <= _LARGEST_IMAGE and height > 1 and math.prod(others) >= _IMAGES


def _along(w: Writer, pairs: Real, dims: Any, normalization: int, forward: bool) -> Real:
    last = pairs.value.dim() - 2
    dims = list(dims)
    if _are_images(pairs.value, dims, last + 1):
        pairs = w(own.fft_c2c.default, pairs, normalization, forward, 2)
        dims = [d for d in dims if d % (last + 1) < last - 1]
    for dim in dims:
        at = dim % (last + 1)
        if at != last and _as_columns(pairs.value.device, pairs.value.shape[at]):
            pairs = w(own.fft_c2c_columns.default, pairs, at, normalization, forward)
            continue
        lines = _swapped(w, pairs, at, last)
        lines = w(own.fft_c2c.default, lines, normalization, forward)
        pairs = _swapped(w, lines, at, last)
    return pairs


def _as_columns(device: torch.device, size: Any) -> bool:
    return device.type == "cpu" and isinstance(size, int) and size <= _LONGEST_COLUMN


@rule(aten._fft_c2c.default)
def _fft_c2c(w: Writer, self: Complex, dim: Any, normalization: int, forward: bool) -> Complex:
    if not forward and dim and _only_real_parts(w.place):
        found = _real_of_half(w, self, dim, normalization)
        if found is None and self.re.value.device.type == "cpu":
            found = _to_real(w, self, dim, normalization, own.fft_c2c_real.default)
        if found is not None:
            return w.complex(found, None, w.dtype)
    dims = list(dim)
    if forward and dims and _is_zero(self.im):
        return w.of_pairs(_of_real(w, self.re, dims, normalization, onesided=False))
    return w.of_pairs(_along(w, self.pairs, reversed(dims), normalization, forward))


def _is_zero(x: Real) -> bool:
    """Whether a plane is filled with zeros."""
    node = x.node
    return node.target in (aten.full.default, aten.full_like.default) and node.args[1] == 0


def _only_real_parts(node: Node) -> bool:
    """Whether nobody needs the imaginary parts of a complex value."""
    return all(
        user.target is aten.view_as_real.default
        and all(
            u.target is aten.select.int
            and u.args[1] in (-1, user.meta["val"].dim() - 1)
            and u.args[2] == 0
            for u in user.users
        )
        for user in node.users
    )


def _real_of_half(w: Writer, z: Complex, dims: Any, normalization: int) -> Real | None:
    """The real parts of an inverse transform of what has zeros in its second half, as has the
    gradient of a transform of real numbers: that of the hermitian part, half as long."""
    dim = dims[-1] % z.re.value.dim()
    size = z.re.value.shape[dim]
    first = [_first_half(p, dim, size) for p in z.planes]
    if first[0] is None or first[1] is None:
        return None
    count = first[0].value.shape[dim]
    k = w(aten.arange.start_step, 0, count, 1, dtype=torch.int64, device=z.re.value.device)
    # The first number and the middle one mirror themselves, the others count half.
    weights = (k * (k * -2 + size)).equals(0).to(first[0].dtype) * 0.5 + 0.5
    weights = w(aten.view.default, weights, [count, *[1] * (z.re.value.dim() - 1 - dim)])
    half = Complex(w, (first[0] * weights, first[1] * weights))
    return _to_real(w, half, [*dims[:-1], dim], normalization, own.fft_c2r.default, size)


def _first_half(plane: Real, dim: int, size: Any) -> Real | None:
    """What a plane has in its first half along a dim, if all else is zero."""
    node = plane.node
    if node.target is not aten.slice_scatter.default or not isinstance(size, int):
        return None
    if len(node.args) != 5:  # others have a step, or are all of the rest
        return None
    base, source, at, start, end = node.args
    first = at % plane.value.dim() == dim and (start or 0, end) == (0, size // 2 + 1)
    if not first or not _is_zero(Real(plane.writer, base)):
        return None
    return Real(plane.writer, source)


def _of_real(w: Writer, x: Real, dims: Any, normalization: int, onesided: bool) -> Real:
    """The transform of real numbers; of the last of the dims it may be half."""
    last = x.value.dim() - 1
    at, others = dims[-1] % (last + 1), dims[:-1]
    if at == last and _are_images(x.value, dims, last + 1):
        pairs = w(own.fft_r2c.default, x, normalization, onesided, 2)
        others = [d for d in others if d % (last + 1) != last - 1]
    else:
        pairs = w(own.fft_r2c.default, _swapped(w, x, at, last), normalization, onesided)
        pairs = _swapped(w, pairs, at, last)
    return _along(w, pairs, reversed(others), normalization, True)


@rule(aten._fft_r2c.default)
def _fft_r2c(w: Writer, self: Real, dim: Any, normalization: int, onesided: bool) -> Complex:
    return w.of_pairs(_of_real(w, self, dim, normalization, onesided))


def _to_real(
    w: Writer, z: Complex, dims: Any, normalization: int, last_one: Any, *size: Any
) -> Real:
    """An inverse transform of which the one along the last dim has real results."""
    rank = z.pairs.value.dim() - 1
    at, others = dims[-1] % rank, dims[:-1]
    if at == rank - 1 and _are_images(z.pairs.value, dims, rank):
        others = [d for d in others if d % rank != rank - 2]
        pairs = _along(w, z.pairs, others, normalization, False)
        return w(last_one, pairs, normalization, *size, 2)
    pairs = _along(w, z.pairs, others, normalization, False)
    last = rank - 1
    lines = w(last_one, _swapped(w, pairs, at, last), normalization, *size)
    return _swapped(w, lines, at, last)


@rule(aten._fft_c2r.default)
def _fft_c2r(w: Writer, self: Complex, dim: Any, normalization: int, last_dim_size: Any) -> Real:
    return _to_real(w, self, dim, normalization, own.fft_c2r.default, last_dim_size)
