"""Operators that stay whole while torch traces.

torch takes the resizing of images apart in Python kernels of its dispatcher, before a table of
decompositions is asked, and recurrent layers into their steps. Inside ``whole()`` it calls the
operators that have lowerings instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from torch_max_backend.compat.decompositions import (
    suggest_memory_format,
    upsample_compute_output_size,
)
from torch_max_backend.compat.operators import DispatchKey, OpOverload
from torch_max_backend.compat.torch_versions import LANCZOS
from torch_max_backend.graph.decompositions import geometry, recurrent
from torch_max_backend.graph.decompositions.gradients.scans import cumprod_backward
from torch_max_backend.process import fork_safety
from torch_max_backend.registry.lowerings import registry

aten = torch.ops.aten

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
_NEAREST = (
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d,
)  # fmt: skip
_FILTERED = (
    aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d,
    aten.upsample_bicubic2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa,
    *LANCZOS,
)  # fmt: skip

_lock = fork_safety.lock()
_depth = 0
_saved: dict[OpOverload, dict[Any, Callable[..., Any]]] = {}


@contextmanager
def whole() -> Iterator[None]:
    """Traces inside keep the operators whole; may be nested, and entered by several threads."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _replace()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _restore()


def kernels() -> dict[OpOverload, Callable[..., Any]]:
    """What calls the operators with lowerings, by the overload that users call, and formulas of
    gradients that torch takes apart otherwise."""
    resizing = {
        packet.vec: (_nearest if packet in _NEAREST else _filtered)(packet.default)
        for packet in (*_NEAREST, *_FILTERED)
        if packet.default in registry
    }
    gradients: dict[OpOverload, Callable[..., Any]] = {
        aten.affine_grid_generator_backward.default: geometry.affine_grid_backward,
        aten.cumprod_backward.default: cumprod_backward,
    }
    return {**resizing, **recurrent.KERNELS, **gradients}


def backwards() -> list[OpOverload]:
    """The gradients of these operators."""
    return [
        getattr(aten, f"{packet.__name__}_backward").default for packet in (*_NEAREST, *_FILTERED)
    ]


def _replace() -> None:
    for op, called in kernels().items():
        if op._overloadname != "default" and "default" in op.overloadpacket.overloads():
            _replace_one(op.overloadpacket.default, None)
        _replace_one(op, called)
    for op in backwards():
        if DispatchKey.Meta not in op.py_kernels:
            # torch's own, in C++, takes no symbolic sizes.
            _saved[op] = dict(op.py_kernels)
            op.py_kernels[DispatchKey.Meta] = _gradient
            op._dispatch_cache.clear()


def _replace_one(op: OpOverload, kernel: Callable[..., Any] | None) -> None:
    _saved[op] = dict(op.py_kernels)
    for key in _KEYS:
        op.py_kernels.pop(key, None)
    if kernel is not None:
        op.py_kernels[DispatchKey.CompositeImplicitAutograd] = kernel
    op._dispatch_cache.clear()


def _restore() -> None:
    for op, kernels in _saved.items():
        op.py_kernels.clear()
        op.py_kernels.update(kernels)
        op._dispatch_cache.clear()
    _saved.clear()


def _gradient(
    grad_output: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *_: Any
) -> torch.Tensor:
    """A tensor as a gradient of these operators returns it, without values."""
    made = grad_output.new_empty(input_size)
    return made.to(memory_format=suggest_memory_format(grad_output))


def _has_no_image(input: torch.Tensor) -> bool:
    """Whether the batch is empty, which torch's fake tensors do not resize."""
    return isinstance(input.shape[0], int) and input.shape[0] == 0


def _nearest(op: OpOverload) -> Callable[..., torch.Tensor]:
    def resized(
        input: torch.Tensor,
        output_size: Sequence[int] | None,
        scale_factors: Sequence[float] | None,
    ) -> torch.Tensor:
        size = upsample_compute_output_size(input.size(), output_size, scale_factors)
        if _has_no_image(input):
            return input.new_empty([*input.shape[:2], *size])
        return op(input, size, *(scale_factors or (None,) * len(size)))

    return resized


def _filtered(op: OpOverload) -> Callable[..., torch.Tensor]:
    def resized(
        input: torch.Tensor,
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> torch.Tensor:
        size = upsample_compute_output_size(input.size(), output_size, scale_factors)
        if _has_no_image(input):
            return input.new_empty([*input.shape[:2], *size])
        return op(input, size, align_corners, *(scale_factors or (None,) * len(size)))

    return resized
