"""Cumulative operations along one dimension."""

from __future__ import annotations

from collections.abc import Callable

import torch
from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

import torch_max_backend.graph.decompositions.gradients.scans  # noqa: F401  defines an operator
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.data_sizes import on_cpu
from torch_max_backend.ops.common.positions import as_lines
from torch_max_backend.ops.common.promotion import full, to_dtype, working_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


@map_to(aten.cumsum.default, kernels="base")
def cumsum(self: TensorValue, dim: int, *, dtype: DType | None = None) -> TensorValue:
    """cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"""
    value = to_dtype(self, working_dtype())
    if value.rank == 0 or is_empty(value.shape):
        return value
    dim = axis(dim, value.rank)
    if not value.device.is_cpu():
        return ops.cumsum(value, dim)
    lines = as_lines(value, dim)
    result = ops.custom("tmb_cumsum", value.device, [lines], [lines.type])
    return ops.reshape(result[0].tensor, value.shape)


@map_to(aten.cumprod.default, kernels="base")
def cumprod(self: TensorValue, dim: int, *, dtype: DType | None = None) -> TensorValue:
    """cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"""
    return _scan(to_dtype(self, working_dtype()), dim, "prod")


@map_to(
    torch.ops.torch_max_backend.cumprod_backward.default,
    supports=lambda input: on_cpu(input),
    kernels="reduction.scan_backward",
)
def cumprod_backward(
    grad: TensorValue, input: TensorValue, dim: int, output: TensorValue
) -> TensorValue:
    """cumprod_backward(Tensor grad, Tensor input, int dim, Tensor output) -> Tensor"""
    if is_empty(input.shape):
        return input
    lines = [as_lines(value, axis(dim, input.rank)) for value in (grad, input, output)]
    (result,) = ops.custom("tmb_cumprod_backward", input.device, lines, [lines[1].type])
    return ops.reshape(result.tensor, input.shape)


@map_to(aten.logcumsumexp.default, kernels="base")
def logcumsumexp(self: TensorValue, dim: int) -> TensorValue:
    """logcumsumexp(Tensor self, int dim) -> Tensor"""
    return _scan(self, dim, "logsumexp")


def _scan(value: TensorValue, dim: int, kind: str) -> TensorValue:
    if value.rank == 0 or is_empty(value.shape):
        return value
    lines = as_lines(value, axis(dim, value.rank))
    (found,) = ops.custom("tmb_scan", value.device, [lines], [lines.type], {"kind": kind})
    return ops.reshape(found.tensor, value.shape)


def _running_extreme(least: bool) -> Callable[..., tuple[TensorValue, TensorValue]]:
    def lowering(self: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
        """cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)"""
        if self.rank == 0 or is_empty(self.shape):
            return self, full(0, DType.int64, self.shape, self.device)
        value = to_dtype(self, DType.uint8) if self.dtype == DType.bool else self
        lines = as_lines(value, axis(dim, value.rank))
        positions = TensorType(DType.int64, lines.shape, value.device)
        found = ops.custom(
            "tmb_running_extreme",
            value.device,
            [lines],
            [lines.type, positions],
            {"least": least},
        )
        values, indices = (ops.reshape(v.tensor, self.shape) for v in found)
        return to_dtype(values, self.dtype), indices

    return lowering


map_to(aten.cummax.default, kernels="base")(_running_extreme(least=False))
map_to(aten.cummin.default, kernels="base")(_running_extreme(least=True))
