"""The same elements under other dims: views, permutations, repetition, joining."""

from __future__ import annotations

import math

import torch
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.bank import permuted
from torch_max_backend.ops.common.copies import strided_copy
from torch_max_backend.ops.common.positions import (
    Size,
    iota,
    is_zero,
    on_device,
    product,
    static,
    window,
)
from torch_max_backend.ops.common.promotion import aligned, full, to_dtype
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

# The kernel is compiled for the number of tensors that it joins.
_FEW = 8
# Elements of a row that is not worth a loop of its own.
_SHORT = 16


def reshaped(value: TensorValue, shape: list[Size]) -> TensorValue:
    """A reshape to a shape that torch guarantees to fit, whether MAX can prove it or not."""
    if list(value.shape) == list(shape):
        return value
    have, want = product(value.shape), product(shape)
    if have == want:
        return ops.reshape(value, shape)
    # MAX cannot prove that the sizes agree (floor divisions): state it of the flat tensor.
    return ops.reshape(ops.rebind(ops.reshape(value, [have]), [want]), shape)


def to_expected(value: TensorValue) -> TensorValue:
    """A reshape to the shape that torch's metadata promises of the node's output."""
    return reshaped(value, list(expected().shape))


@map_to(aten.view.default, aten._unsafe_view.default, native16=True)
def view(self: TensorValue, size: list[int | Dim]) -> TensorValue:
    """view(Tensor(a) self, SymInt[] size) -> Tensor(a)"""
    return to_expected(self)


# torch writes it itself where a number that is read from a tensor becomes a tensor again.
@map_to(aten.reshape.default, native16=True)
def reshape(self: TensorValue, shape: list[int | Dim]) -> TensorValue:
    """reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)"""
    return to_expected(self)


@map_to(aten.unsqueeze.default, aten.squeeze.dim, native16=True)
def unsqueeze(self: TensorValue, dim: int) -> TensorValue:
    """unsqueeze(Tensor(a) self, int dim) -> Tensor(a)"""
    return to_expected(self)


@map_to(aten.squeeze.dims, native16=True)
def squeeze_dims(self: TensorValue, dim: list[int]) -> TensorValue:
    """squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)"""
    return to_expected(self)


@map_to(aten.squeeze.default, native16=True)
def squeeze(self: TensorValue) -> TensorValue:
    """squeeze(Tensor(a) self) -> Tensor(a)"""
    return to_expected(self)


@map_to(aten.permute.default, native16=True)
def permute(self: TensorValue, dims: list[int]) -> TensorValue:
    """permute(Tensor(a) self, int[] dims) -> Tensor(a)"""
    return _permuted(self, [axis(d, self.rank) for d in dims])


@map_to(aten.transpose.int, native16=True)
def transpose(self: TensorValue, dim0: int, dim1: int) -> TensorValue:
    """transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"""
    order = list(range(self.rank))
    a, b = axis(dim0, self.rank), axis(dim1, self.rank)
    if self.rank:
        order[a], order[b] = b, a
    return _permuted(self, order)


@map_to(aten.t.default, native16=True)
def t(self: TensorValue) -> TensorValue:
    """t(Tensor(a) self) -> Tensor(a)"""
    return _permuted(self, list(range(self.rank))[::-1])


def _permuted(value: TensorValue, order: list[int]) -> TensorValue:
    return value if order == sorted(order) else permuted(value, order)


@map_to(aten.expand.default, native16=True)
def expand(self: TensorValue, size: list[int | Dim], *, implicit: bool = False) -> TensorValue:
    """expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"""
    self, shape = aligned(self), list(expected().shape)
    return self if list(self.shape) == shape else ops.broadcast_to(self, shape)


@map_to(aten.repeat.default, native16=True)
def repeat(self: TensorValue, repeats: list[int | Dim]) -> TensorValue:
    """repeat(Tensor self, SymInt[] repeats) -> Tensor"""
    if any(is_zero(r) for r in repeats):
        return full(0, self.dtype, expected().shape, self.device)
    # Each repeated dim gets a dim of its own to be broadcast, which fuses; ops.tile does not.
    sizes: list[Size] = [1] * (len(repeats) - self.rank) + list(self.shape)
    split: list[Size] = []
    wide: list[Size] = []
    for times, size in zip(repeats, sizes, strict=True):
        if static(times) != 1:
            split.append(1)
            wide.append(times)
        split.append(size)
        wide.append(size)
    return to_expected(ops.broadcast_to(reshaped(self, split), wide))


@map_to(aten.flip.default, native16=True, kernels="base")
def flip(self: TensorValue, dims: list[int]) -> TensorValue:
    """flip(Tensor self, int[] dims) -> Tensor"""
    if self.rank == 0 or any(is_zero(size) for size in self.shape):
        return self
    turned = {axis(d, self.rank) for d in dims}
    sizes = [n for size in self.shape if (n := static(size)) is not None]
    if self.device.is_cpu() and turned and len(sizes) == self.rank:
        steps = [math.prod(sizes[i + 1 :]) for i in range(self.rank)]
        offset = sum((sizes[d] - 1) * steps[d] for d in turned)
        strides = [-s if i in turned else s for i, s in enumerate(steps)]
        return strided_copy(reshaped(self, [product(sizes)]), sizes, strides, offset)
    for dim in sorted(turned):
        # By a gather: MAX leaves some static slices of negative step unturned.
        size = self.shape[dim]
        last = on_device(size - 1, self.device)
        self = ops.gather(self, last - iota(size, self.device), dim)
    return self


@map_to(aten.cat.default, native16=True, kernels="base")
def cat(tensors: list[TensorValue], dim: int = 0) -> TensorValue:
    """cat(Tensor[] tensors, int dim=0) -> Tensor"""
    spec = expected()
    # torch lets 1-d tensors without elements join anything.
    parts = [t for t in tensors if not (t.rank == 1 and is_zero(t.shape[0]))]
    dim = axis(dim, spec.rank)
    parts = [to_dtype(t, spec.dtype) for t in parts if not is_zero(t.shape[dim])]
    if not parts or any(is_zero(s) for s in spec.shape):
        return full(0, spec.dtype, spec.shape, spec.device)
    if len(parts) == 1:
        return parts[0]
    others = list(spec.shape)
    aligned = []
    for part in parts:
        # Sizes that torch found equal are made equal by name.
        others[dim] = part.shape[dim]
        same = all(a == b for a, b in zip(part.shape, others, strict=True))
        aligned.append(part if same else ops.rebind(part, others))
    if spec.device.is_cpu() and len(aligned) <= _FEW:
        return _joined(aligned, dim)
    return ops.concat(aligned, dim)


def _joined(parts: list[TensorValue], dim: int) -> TensorValue:
    shape = list(parts[0].shape)
    shape[dim] = sum((p.shape[dim] for p in parts), start=Dim(0))
    last = static(shape[-1])
    if dim < len(shape) - 1 and last is not None and last < _SHORT:
        # Too short for vectors: what lies beside each other from the axis on, as one row.
        parts = [ops.reshape(p, [*p.shape[:dim], product(p.shape[dim:])]) for p in parts]
        row = product(shape[dim:])
        out = TensorType(parts[0].dtype, [*shape[:dim], row], parts[0].device)
    else:
        out = TensorType(parts[0].dtype, shape, parts[0].device)
    result = ops.custom("tmb_concat", out.device, parts, [out], {"axis": dim})[0].tensor
    return result if out.rank == len(shape) else ops.reshape(result, shape)


@map_to(aten.roll.default, native16=True, kernels="base")
def roll(
    self: TensorValue, shifts: int | Dim | list[int | Dim], dims: int | list[int]
) -> TensorValue:
    """roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor"""
    by = shifts if isinstance(shifts, list) else [shifts]
    along = dims if isinstance(dims, list) else [dims]
    if any(is_zero(s) for s in self.shape):
        return self
    if not along:
        flat = _rolled(reshaped(self, [product(self.shape)]), 0, by[0])
        return to_expected(flat)
    value = self
    for shift, dim in zip(by, along, strict=True):
        value = _rolled(value, axis(dim, self.rank), shift) if self.rank else value
    return value


def _rolled(value: TensorValue, dim: int, shift: Size) -> TensorValue:
    size = static(value.shape[dim])
    amount = static(shift)
    if size is not None and amount is not None:
        cut = -amount % size
        if cut == 0:
            return value
        tail = window(value, dim, cut, size - cut)
        parts = [tail, window(value, dim, 0, cut)]
        return _joined(parts, dim) if value.device.is_cpu() else ops.concat(parts, dim)
    positions = ops.mod(
        iota(value.shape[dim], value.device) - on_device(shift, value.device),
        on_device(value.shape[dim], value.device),
    )
    return ops.gather(value, positions, dim)
