"""Which operators are decomposed before conversion.

Torch's core ATen decompositions and a few more, minus every operator that has a lowering: what
is lowered is never decomposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from torch_max_backend.compat.decompositions import (
    core_aten_decompositions,
    get_decompositions,
    index_add,
)
from torch_max_backend.compat.inductor import fma
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.graph.decompositions import (
    foreach,
    geometry,
    gradients,
    linear_algebra,
    transformer_layer,
)
from torch_max_backend.registry.lowerings import registry

aten = torch.ops.aten


def _index_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Any = 1
) -> torch.Tensor:
    """Torch's decomposition, which alone would broadcast a source of another shape."""
    shape = list(self.shape)
    if shape:
        shape[dim] = index.numel()
    if list(source.shape) != shape and self.dim() == source.dim():
        raise RuntimeError(
            f"index_add takes a source of shape {shape} here, not {list(source.shape)}"
        )
    return index_add(self, dim, index, source, alpha=alpha)


def _angle(self: torch.Tensor) -> torch.Tensor:
    """Of real numbers; ``graph/passes/complex_rules.py`` has that of complex ones."""
    if self.is_complex():
        return NotImplemented
    x = self if self.is_floating_point() else self.to(torch.get_default_dtype())
    result = torch.where(x < 0, torch.full_like(x, math.pi), torch.zeros_like(x))
    return torch.where(x.isnan(), x, result)


def _trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """As a contraction: each operand has the dimensions that it is not expanded along."""
    dims = range(i1.dim() + len(expand1))
    axes = [[d for d in dims if d not in expand] for expand in (expand1, expand2, expand3)]
    (x, a), (y, b), (z, c) = zip((i1, i2, i3), axes, strict=True)
    return torch.einsum(x, a, y, b, z, c, [d for d in dims if d not in sumdim])


def _embedding_renorm(
    self: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    """The rows that are looked up, those with a larger norm scaled to ``max_norm``."""
    used = self.new_zeros(self.shape[0], dtype=torch.bool)
    used = used.index_put([indices.flatten()], used.new_ones([]))
    norms = torch.linalg.vector_norm(self, norm_type, 1)
    scale = torch.where(used & (norms > max_norm), max_norm / (norms + 1e-7), 1.0)
    return self * scale.unsqueeze(1).to(self.dtype)


def _resize(self: torch.Tensor, size: list[int], *, memory_format: Any = None) -> torch.Tensor:
    """What memory there is, in the new shape. The rest, which torch leaves undefined, is 0."""
    if not self.is_contiguous() or memory_format not in (None, torch.contiguous_format):
        return NotImplemented
    flat, count = self.reshape(-1), math.prod(size)
    if count > flat.numel():
        flat = torch.cat([flat, flat.new_zeros(count - flat.numel())])
    return flat[:count].reshape(size)


def _efficient_zeros(size: list[int], **options: Any) -> torch.Tensor:
    """Zeros in memory: ``sgn`` has them for a gradient."""
    return torch.zeros(size, **options)


def _conv_tbc(
    self: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0
) -> torch.Tensor:
    """Of ``[length, batch, channels]``, with weights ``[kernel, channels, outputs]``."""
    images, kernels = self.permute(1, 2, 0), weight.permute(2, 1, 0)
    found = torch.nn.functional.conv1d(images, kernels, bias, padding=pad)
    return found.permute(2, 0, 1)


def _eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Torch's decomposition (2.15) counts in uint16 from 257 rows on, and its `arange` does not."""
    rows = torch.arange(n, device=device)
    columns = rows if m is None else torch.arange(m, device=device)
    return (rows.unsqueeze(-1) == columns).to(dtype or torch.get_default_dtype())


def _fma(a: torch.Tensor, b: Any, c: torch.Tensor) -> torch.Tensor:
    """As eager computes it; Dynamo makes ``fma`` of ``addcmul_``, which optimizers call."""
    return a * b + c


_OWN = {
    aten._efficientzerotensor.default: _efficient_zeros,
    aten._trilinear.default: _trilinear,
    aten.angle.default: _angle,
    aten.conv_tbc.default: _conv_tbc,
    aten.embedding_renorm.default: _embedding_renorm,
    aten.eye.default: _eye,
    aten.eye.m: _eye,
    aten.index_add.default: _index_add,
    aten.resize.default: _resize,
    fma: _fma,
}

# Operators that copy where their namesakes return views; bodies of control flow hold them.
_COPIES = (
    aten.as_strided_copy, aten.permute_copy, aten.select_copy, aten.slice_copy, aten.split_copy,
    aten.unbind_copy, aten.view_copy,
)  # fmt: skip

# Not in torch's core table, but better taken apart than lowered.
_MORE = (
    aten.addcdiv,
    aten.addcmul,
    aten.dist,
    aten.rrelu_with_noise_backward,
    aten._batch_norm_with_update_functional,
    aten._unsafe_view,
)


def decomposition_table() -> dict[OpOverload, Callable[..., Any]]:
    """The decompositions for a trace with the lowerings registered at this moment."""
    return {op: f for op, f in _all_decompositions().items() if op not in registry}


@cache
def _all_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    # What torch's public table has more, autograd has taken apart; to find it takes torch 80 ms.
    table = dict(core_aten_decompositions())
    table.update(get_decompositions(_MORE))
    table.update(_OWN)
    table.update(_copies())
    table.update(foreach.decompositions())
    table.update(geometry.DECOMPOSITIONS)
    table.update(linear_algebra.DECOMPOSITIONS)
    table.update(gradients.DECOMPOSITIONS)
    table.update(transformer_layer.DECOMPOSITIONS)
    return table


def _copies() -> dict[OpOverload, Callable[..., Any]]:
    found: dict[OpOverload, Callable[..., Any]] = {}
    for packet in _COPIES:
        namesake = getattr(aten, packet.__name__.removesuffix("_copy"))
        for name in packet.overloads():
            if not name.endswith("out"):
                found[getattr(packet, name)] = _copy_of(getattr(namesake, name))
    return found


def _copy_of(view: OpOverload) -> Callable[..., Any]:
    def copied(*args: Any, **kwargs: Any) -> Any:
        return pytree.tree_map(torch.clone, view(*args, **kwargs))

    return copied
