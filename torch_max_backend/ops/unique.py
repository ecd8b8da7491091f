"""Distinct values, how often and where they occur."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.bank import nothing
from torch_max_backend.ops.common.data_sizes import numbers, on_cpu
from torch_max_backend.ops.common.positions import moved_to_front, product
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.ops.sort import sorted_lines
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

Three = tuple[TensorValue, TensorValue, TensorValue]


def _comparable(x: TensorValue) -> TensorValue:
    return to_dtype(x, DType.uint8) if x.dtype == DType.bool else x


def _distinct_dim() -> int:
    """The dimension of the first result that counts distinct values."""
    node = current_node().node
    names = [a.name for a in node.target._schema.arguments]
    dim = node.kwargs.get("dim")
    if "dim" in names and len(node.args) > names.index("dim"):
        dim = node.args[names.index("dim")]
    return 0 if dim is None else axis(dim, expected(0).rank)


def _runs(rows: TensorValue, order: TensorValue | None = None) -> Three:
    """Of rows ``[n, width]`` the first of each run of equal ones, the run of each, and how long the
    runs are; the latter two are empty if torch wants them so.

    Args:
        rows: The rows.
        order: Where each stood among those of which the runs are told.
    """
    device, n, size = rows.device, rows.shape[0], expected().shape[_distinct_dim()]
    one = TensorType(DType.int64, [1], device)
    (count,) = ops.custom("tmb_count_runs", device, [rows], [one])
    wanted = [0 if is_empty(expected(i).shape) else m for i, m in ((1, n), (2, size))]
    kinds = [TensorType(rows.dtype, [size, rows.shape[1]], device)]
    kinds += [TensorType(DType.int64, [m], device) for m in wanted]
    places = nothing(DType.int64) if order is None else order
    values = [rows, places, numbers(count.tensor, size)]
    firsts, inverse, lengths = ops.custom("tmb_consecutive", device, values, kinds)
    return firsts.tensor, inverse.tensor, lengths.tensor


def _slices(rows: TensorValue, self: TensorValue, dim: int) -> TensorValue:
    """Rows that were slices along a dim of a tensor, as such."""
    at = axis(dim, self.rank)
    rest = [*self.shape[:at], *self.shape[at + 1 :]]
    values = ops.reshape(to_dtype(rows, self.dtype), [rows.shape[0], *rest])
    return ops.permute(values, [*range(1, at + 1), 0, *range(at + 1, self.rank)])


def _results(values: TensorValue, inverse: TensorValue, counts: TensorValue) -> Three:
    """The three results; torch leaves those empty that nobody asked for."""
    given = [values, inverse, counts]
    for i in (1, 2):
        shape = expected(i).shape
        given[i] = (
            full(0, DType.int64, shape, values.device)
            if is_empty(shape)
            else ops.reshape(given[i], shape)
        )
    return given[0], given[1], given[2]


def _nothing(self: TensorValue) -> Three:
    return _results(*[full(0, self.dtype, expected(0).shape, self.device)] * 3)


def _rows(self: TensorValue, dim: int | None) -> TensorValue:
    """What is compared as ``[n, width]``: the elements, or the slices along a dim."""
    if dim is None:
        return _comparable(ops.reshape(self, [product(self.shape), 1]))
    front = moved_to_front(self, [axis(dim, self.rank)])
    return _comparable(ops.reshape(front, [front.shape[0], product(front.shape[1:])]))


@map_to(aten._unique2.default, kernels="sorting.sort", supports=on_cpu, sizes_from_data=True)
def unique(
    self: TensorValue,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Three:
    """_unique2(Tensor self, bool sorted=True, bool return_inverse=False,
    bool return_counts=False) -> (Tensor, Tensor, Tensor)

    Sorted in any case, as torch's on CPU. Each NaN is a value of its own.
    """
    if is_empty(self.shape):
        return _nothing(self)
    rows = _rows(self, None)
    ordered, order = sorted_lines(ops.reshape(rows, [rows.shape[0]]), 0, descending=False)
    firsts, inverse, counts = _runs(ops.reshape(ordered, rows.shape), order)
    values = ops.reshape(to_dtype(firsts, self.dtype), expected(0).shape)
    return _results(values, inverse, counts)


@map_to(aten.unique_dim.default, kernels="sorting.sort", supports=on_cpu, sizes_from_data=True)
def unique_dim(
    self: TensorValue,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Three:
    """unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False,
    bool return_counts=False) -> (Tensor, Tensor, Tensor)"""
    if is_empty(expected(0).shape):
        return _nothing(self)
    rows = _rows(self, dim)
    line = TensorType(DType.int64, [rows.shape[0]], self.device)
    order = ops.custom("tmb_order_rows", self.device, [rows], [line, line])[0].tensor
    firsts, inverse, counts = _runs(ops.gather(rows, order, 0), order)
    return _results(_slices(firsts, self, dim), inverse, counts)


def _counted_from_the_front(
    self: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Refusal | None:
    if dim == -1:
        return Refusal("torch traces a wrong shape for dim -1; count it from the front")
    return on_cpu(self)


@map_to(
    aten.unique_consecutive.default,
    kernels="sorting.sort",
    supports=_counted_from_the_front,
    sizes_from_data=True,
)
def unique_consecutive(
    self: TensorValue,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Three:
    """unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False,
    int? dim=None) -> (Tensor, Tensor, Tensor)"""
    if is_empty(expected(0).shape) or is_empty(self.shape):
        return _nothing(self)
    firsts, inverse, counts = _runs(_rows(self, dim))
    if dim is None:
        values = ops.reshape(to_dtype(firsts, self.dtype), expected(0).shape)
        return _results(values, inverse, counts)
    return _results(_slices(firsts, self, dim), inverse, counts)
