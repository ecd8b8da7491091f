"""Copies, and copies to another dtype or device."""

from __future__ import annotations

from functools import cache

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.graph.passes import float8  # noqa: F401  it defines operators
from torch_max_backend.ops.common.elementary import KERNELS
from torch_max_backend.ops.common.promotion import aligned, broadcast, to_dtype
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten
prims = torch.ops.prims


def _placed(value: TensorValue) -> TensorValue:
    """``value`` in the dtype and on the device of the result."""
    spec = expected()
    value = to_dtype(value, spec.dtype)
    return value if value.device == spec.device else ops.transfer_to(value, spec.device)


@map_to(aten._to_copy.default, native16=True)
def to_copy(
    self: TensorValue, *, dtype: DType | None = None, device: DeviceRef | None = None
) -> TensorValue:
    """_to_copy(Tensor self, *, ScalarType? dtype=None, Device? device=None) -> Tensor"""
    return _placed(self)


@map_to(prims.convert_element_type.default, native16=True)
def convert_element_type(a: TensorValue, dtype: DType) -> TensorValue:
    """convert_element_type(Tensor a, ScalarType dtype) -> Tensor"""
    return to_dtype(a, dtype)


@map_to(torch.ops.torch_max_backend.from_float8.default, kernels=KERNELS, native16=True)
def from_float8(self: TensorValue, kind: str, dtype: DType) -> TensorValue:
    """The numbers that bytes stand for (``graph/float8.py``)."""
    kernel = TensorType(dtype, self.shape, self.device)
    return ops.custom("tmb_from_float8", self.device, [self], [kernel], {"kind": kind})[0].tensor


@map_to(torch.ops.torch_max_backend.to_float8.default, kernels=KERNELS, native16=True)
def to_float8(self: TensorValue, kind: str) -> TensorValue:
    """The bytes that stand for numbers (``graph/float8.py``)."""
    settings = {"kind": kind, "saturating": _saturates()}
    kernel = TensorType(DType.uint8, self.shape, self.device)
    return ops.custom("tmb_to_float8", self.device, [self], [kernel], settings)[0].tensor


@cache
def _saturates() -> bool:
    """Whether what is too large for float8_e4m3fn becomes its largest number in this version of
    torch, not NaN."""
    return not torch.full((), 1e6, device="cpu").to(torch.float8_e4m3fn).float().isnan().item()


@map_to(prims.device_put.default, native16=True)
def device_put(a: TensorValue, device: DeviceRef) -> TensorValue:
    """device_put(Tensor a, Device device, bool non_blocking=False) -> Tensor"""
    return _placed(a)


@map_to(
    aten.clone.default,
    aten.alias.default,
    aten.alias_copy.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.positive.default,
    prims.clone.default,
    native16=True,
)
def same(self: TensorValue) -> TensorValue:
    """clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor"""
    # Values of a MAX graph never change; the runtime keeps outputs from sharing memory.
    return self


@map_to(prims.view_of.default, native16=True)
def view_of(a: TensorValue) -> TensorValue:
    """view_of(Tensor a) -> Tensor"""
    return a


@map_to(aten.copy.default, native16=True)
def copy(self: TensorValue, src: TensorValue) -> TensorValue:
    """copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor"""
    return broadcast(aligned(_placed(src)), expected().shape)
