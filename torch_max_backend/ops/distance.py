"""Distances between rows, by kernels of ``mojo_kernels/linalg/distance.mojo``."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.positions import product
from torch_max_backend.ops.common.promotion import broadcast, full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

_KINDS = {0.0: "zero", 1.0: "one", 2.0: "two", math.inf: "inf"}


def _settings(p: float) -> tuple[TensorValue, dict[str, str]]:
    """The kernels' argument and parameter for a norm."""
    p = float(p)
    return ops.constant(p, DType.float64, DeviceRef.CPU()), {"kind": _KINDS.get(p, "other")}


@map_to(aten._cdist_forward.default, kernels="linalg.distance")
def cdist(x1: TensorValue, x2: TensorValue, p: float, compute_mode: int | None) -> TensorValue:
    """_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor"""
    shape = expected().shape
    if is_empty(shape) or is_empty(x1.shape):
        return full(0, x1.dtype, shape, x1.device)
    lead, batch = list(shape[:-2]), product(shape[:-2])
    lines = []
    for value in (x1, x2):
        whole = broadcast(value, [*lead, *value.shape[-2:]])
        lines.append(ops.reshape(whole, [batch, *value.shape[-2:]]))
    exponent, settings = _settings(p)
    kind = TensorType(x1.dtype, [batch, *shape[-2:]], x1.device)
    (found,) = ops.custom("tmb_cdist", x1.device, [*lines, exponent], [kind], settings)
    return ops.reshape(found.tensor, shape)


@map_to(aten._pdist_forward.default, kernels="linalg.distance")
def pdist(self: TensorValue, p: float = 2) -> TensorValue:
    """_pdist_forward(Tensor self, float p=2) -> Tensor"""
    shape = expected().shape
    if is_empty(shape) or is_empty(self.shape):
        return full(0, self.dtype, shape, self.device)
    exponent, settings = _settings(p)
    kind = TensorType(self.dtype, shape, self.device)
    (found,) = ops.custom("tmb_pdist", self.device, [self, exponent], [kind], settings)
    return found.tensor
