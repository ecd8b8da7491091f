"""MAX's operations that move elements or see them otherwise: as views, else as copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from torch_max_backend.engines.steps.planner.graph import Node, Value
from torch_max_backend.engines.steps.planner.kernels import SIZE_OPERANDS
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.sizes import (
    Size,
    Sizes,
    dense_strides,
    product,
    quotient,
)
from torch_max_backend.engines.steps.planner.tasks import Kernel, Number, Pointwise, Reduce
from torch_max_backend.engines.steps.planner.views import View, kept
from torch_max_backend.engines.steps.program_space import adds_across

if TYPE_CHECKING:
    from torch_max_backend.engines.steps.planner.lowering import Lowering

# Constants of up to so many elements are computed when the plan is made.
FOLDED = 65536


def _constant(lowering: Lowering, node: Node) -> None:
    lowering.constant(node.results[0], node.constant)


def _shape_to_tensor(lowering: Lowering, node: Node) -> None:
    lowering.set_sizes(node.results[0], node.attributes["sizes"])


def _reshaped(lowering: Lowering, node: Node) -> None:
    _reshape(lowering, node.operands[0], node.results[0], node.origin)


def _reshape(lowering: Lowering, source: Value, result: Value, origin: Any) -> None:
    view = lowering.view(source)
    made = view.reshape(result.shape)
    if made is None:
        made = lowering.dense(view, origin).reshape(result.shape)
    if made is None:
        # Not known to have as many elements: it is checked when the sizes are.
        lowering.checks.append((product(view.shape), product(result.shape)))
        dense = lowering.dense(view, origin)
        made = View(dense.root, result.shape, dense_strides(result.shape), dense.offset)
    lowering.views[result] = made


def _rebind(lowering: Lowering, node: Node) -> None:
    view, result = lowering.view(node.operands[0]), node.results[0]
    for old, new in zip(view.shape, result.shape, strict=True):
        if old != new:
            lowering.checks.append((old, new))
    # The new names are what later operations use.
    strides = dense_strides(result.shape) if view.is_dense() else view.strides
    lowering.views[result] = View(view.root, result.shape, strides, view.offset)


def _broadcast(lowering: Lowering, node: Node) -> None:
    result = node.results[0]
    view = lowering.view(node.operands[0]).broadcast(result.shape)
    tensor = lowering.constant_of(view)
    if tensor is not None and tensor.numel() == 0:
        lowering.constant(result, tensor.contiguous())
    else:
        lowering.views[result] = view


def _transpose(lowering: Lowering, node: Node) -> None:
    order = lowering.numbers(node.operands[1])
    if order is None:
        raise NotPlanned("a transpose whose order is computed")
    lowering.views[node.results[0]] = lowering.view(node.operands[0]).transpose(
        [i for i in order if isinstance(i, int)]
    )


def _static_slice(lowering: Lowering, node: Node) -> None:
    found = node.attributes
    _slice(lowering, node, found["starts"], found["stops"], found["steps"])


def _computed_slice(lowering: Lowering, node: Node) -> None:
    starts, stops, steps = (lowering.numbers(v) for v in node.operands[1:4])
    if starts is None or stops is None or steps is None:
        raise NotPlanned("a slice whose bounds are computed")
    _slice(lowering, node, starts, stops, steps)


def _slice(lowering: Lowering, node: Node, starts: Sizes, stops: Sizes, steps: Sizes) -> None:
    known = [s for s in steps if isinstance(s, int)]
    if len(known) != len(steps):
        raise NotPlanned("a slice whose step is symbolic")
    view, result = lowering.view(node.operands[0]), node.results[0]
    if any(n == 0 for n in result.shape):
        lowering.views[result] = View.whole(result)
        return
    found = tuple(map(_begin, starts, stops, known, view.shape, result.shape))
    lowering.views[result] = view.slice(found, result.shape, known)


def _range(lowering: Lowering, node: Node) -> None:
    result = node.results[0]
    numbers = [n[0] for v in node.operands if (n := lowering.numbers(v)) and len(n) == 1]
    if len(numbers) != 3 or result.dtype != "int64":
        tensors = _constants(lowering, node)
        if tensors is not None and all(isinstance(n, int) for n in result.shape):
            start, _, step = (t.item() for t in tensors)
            dtype = getattr(torch, result.dtype)
            values = start + torch.arange(result.shape[0], dtype=dtype) * step
            lowering.constant(result, values.to(dtype))
            return
        raise NotPlanned("a range whose bounds are computed")
    start, _, step = numbers
    if all(isinstance(n, int) for n in (start, step, result.shape[0])):
        lowering.constant(result, start + torch.arange(result.shape[0]) * step)
        return
    lowering.ranges[result] = (start, step)
    lowering.views[result] = View.whole(result)


def _concat(lowering: Lowering, node: Node) -> None:
    _concatenate(lowering, node, node.attributes["axis"])


def _concat_kernel(lowering: Lowering, node: Node) -> None:
    _concatenate(lowering, node, node.attributes["parameters"]["axis"])


def _concatenate(lowering: Lowering, node: Node, axis: int) -> None:
    result = node.results[0]
    axis %= result.rank
    tensors = _constants(lowering, node)
    if tensors is not None and sum(t.numel() for t in tensors) <= FOLDED:
        lowering.constant(result, torch.cat(tensors, axis))
        return
    if result.rank == 1:
        numbers = [n for v in node.operands if (n := lowering.numbers(v)) is not None]
        if len(numbers) == len(node.operands):
            lowering.set_sizes(result, tuple(n for part in numbers for n in part))
            return
    whole = lowering.views[result] = View.whole(result)
    at: Any = 0
    for value in node.operands:
        view = lowering.view(value)
        if view.shape[axis] == 0:
            continue
        starts = tuple(at if i == axis else 0 for i in range(result.rank))
        lowering.copy(view, whole.slice(starts, view.shape, [1] * result.rank), node.origin)
        at = at + view.shape[axis]


def _constants(lowering: Lowering, node: Node) -> list[torch.Tensor] | None:
    """The tensors of a node's operands, if all are constants."""
    found = [t for v in node.operands if (t := lowering.constant_of(lowering.view(v))) is not None]
    return found if len(found) == len(node.operands) else None


def _seen(view: View, shape: Sizes) -> View:
    """A dense view with other dims."""
    made = view.reshape(shape)
    assert made is not None
    return made


def _tile(lowering: Lowering, node: Node) -> None:
    result, view = node.results[0], lowering.view(node.operands[0])
    repeats = lowering.numbers(node.operands[1])
    if repeats is None:
        raise NotPlanned("a tile whose repeats are computed")
    # [n] repeated k times is [k, n], its first dim broadcast.
    split = tuple(n for size in view.shape for n in (1, size))
    spread = tuple(n for k, size in zip(repeats, view.shape, strict=True) for n in (k, size))
    between = view.reshape(split)
    if between is None:
        raise NotPlanned("a tile of this layout")
    between = between.broadcast(spread)
    made = between.reshape(result.shape)
    if made is None:
        made = _seen(lowering.dense(between, node.origin), result.shape)
    lowering.views[result] = made


def _gather(lowering: Lowering, node: Node) -> None:
    """Rows along an axis: ``[outer, n, inner]`` by ``[count]`` to ``[outer, count, inner]``."""
    table, index = (lowering.view(v) for v in node.operands[:2])
    result = node.results[0]
    axis = node.attributes["axis"] % len(table.shape)
    count = product(index.shape)
    tensor = lowering.constant_of(index)
    if tensor is not None and tensor.numel() == 1:
        # One constant index: a view.
        at = int(tensor.item())
        size = table.shape[axis]
        shape = tuple(1 if i == axis else n for i, n in enumerate(table.shape))
        starts = tuple((at + size if at < 0 else at) if i == axis else 0 for i in range(len(shape)))
        one = table.slice(starts, shape, [1] * len(shape)).reshape(result.shape)
        if one is not None:
            lowering.views[result] = one
            return
    outer, inner = product(table.shape[:axis]), product(table.shape[axis + 1 :])
    rows = _seen(lowering.dense(table, node.origin), (outer, table.shape[axis], inner))
    flat = _seen(lowering.dense(index, node.origin), (count,))
    lowering.views[result] = View.whole(result)
    to = _seen(lowering.views[result], (outer, count, inner))
    lowering.add(Kernel("tmb_take", {}, [to], [rows, flat], node.origin))


def _mutable_load(lowering: Lowering, node: Node) -> None:
    source = lowering.view(node.operands[0])
    lowering.views[node.results[0]] = source


def _reduce(lowering: Lowering, node: Node) -> None:
    parameters = node.attributes["parameters"]
    view, result = lowering.view(node.operands[0]), node.results[0]
    kind = parameters["kind"]
    whole = lowering.views[result] = View.whole(result)
    axis = len(view.shape) - (2 if parameters["beside"] else 1)
    if view.shape[axis] == 1:
        lowering.copy(view, whole, node.origin)
        return
    keep = [i for i, n in enumerate(view.shape) if n != 1 and i != axis]
    operand = kept(view, [*keep, axis])
    beside = parameters["beside"] and any(n != 1 for n in view.shape[axis + 1 :])
    if beside and not (kind == "sum" and _is_made_by_a_program(lowering, view)):
        outer, inner = product(view.shape[:axis]), view.shape[axis + 1]
        rows = _seen(lowering.dense(view, node.origin), (outer, view.shape[axis], inner))
        to = _seen(whole, (outer, 1, inner))
        lowering.add(
            Kernel("tmb_reduce", {"kind": kind, "beside": True}, [to], [rows], node.origin)
        )
        return
    to = kept(whole, keep)
    lowering.add(Reduce(kind, operand, to, node.origin))


def _cumsum(lowering: Lowering, node: Node) -> None:
    view, result = lowering.view(node.operands[0]), node.results[0]
    if view.shape[1] != 1:
        lowering.kernel(node)
        return
    whole = lowering.views[result] = View.whole(result)
    # Sums begin with 0, which makes 0 of -0.
    lowering.pointwise("add", [view, Number(0, result.dtype)], whole, node.origin)


# Rows of a size that varies are taken for so many.
_UNKNOWN = 1024


def _is_made_by_a_program(lowering: Lowering, view: View) -> bool:
    """Whether sums beside each other are of what a program computes, which can add it up itself."""
    rows, inner = view.shape[-2:]
    if view.dtype not in ("float32", "float16", "bfloat16") or not isinstance(inner, int):
        return False
    if not adds_across(inner, rows if isinstance(rows, int) else _UNKNOWN):
        return False
    makers = [t for t in lowering.tasks if any(v.root is view.root for v in t.writes)]
    return len(makers) == 1 and isinstance(makers[0], Pointwise) and makers[0].name != "copy"


def _with_size(lowering: Lowering, node: Node) -> None:
    """A kernel of which one operand only tells a size: a number that stands everywhere there."""
    operand = SIZE_OPERANDS[node.attributes["symbol"]]
    zero = Value("int64", (1,))
    lowering.constant(zero, torch.zeros(1, dtype=torch.int64))
    shape = node.operands[operand].shape
    lowering.kernel(node, {operand: lowering.view(zero).broadcast(shape)})


def _attention(lowering: Lowering, node: Node) -> None:
    """Keys and values whose heads were repeated for the queries are taken as they were before:
    the kernel takes fewer heads of them."""
    seen = {}
    for operand, swapped in ((1, 7), (2, 8)):
        turned = lowering.numbers(node.operands[swapped])
        view = lowering.view(node.operands[operand])
        if turned is not None:
            found = _before_repeat(lowering, view, 2 if turned[0] else 1)
            seen[operand] = view if found is None else found
    lowering.kernel(node, seen)


def _before_repeat(lowering: Lowering, view: View, axis: int) -> View | None:
    """What a view is a dense copy of, if along an axis each element stands there several times,
    next to each other; with each once, or ``None``."""
    source = lowering.copied.get(view.root)
    if source is None or not view.is_whole():
        return None
    for size, stride in zip(source.shape, source.strides, strict=True):
        count = None if stride != 0 or size == 1 else quotient(view.shape[axis], size)
        if count is None:
            continue
        shape = (*view.shape[:axis], count, size, *view.shape[axis + 1 :])
        made = source.reshape(shape)
        if made is not None and made.strides[axis + 1] == 0:
            keep = [i for i in range(len(shape)) if i != axis + 1]
            return kept(made, keep)
    return None


def _begin(start: Size, stop: Size, step: int, size: Size, count: Size) -> Size:
    """The position of a slice's first element: MAX counts negative ones from the end, and takes
    what lies before the first element for that. Of a symbolic size, ``count``, how many elements
    the slice has, tells whether a start does.

    Raises:
        NotPlanned: It does not tell.
    """
    factors = [start] if isinstance(start, int) else [*start.terms.values()]
    if min(factors) >= 0:
        return start
    if isinstance(size, int) and isinstance(start, int):
        return max(size + start, 0)
    ends = [size + stop] if isinstance(stop, int) and stop < 0 else [stop, size]

    def fits(begin: Size) -> bool:
        return any((end - begin + step - 1) // step == count for end in ends)

    # A start with factors of both signs may be counted from either end.
    places = [size + start, 0] if max(factors) <= 0 else [start, size + start, 0]
    found = [place for place in places if step > 0 and fits(place)]
    if len(found) != 1:
        raise NotPlanned("a slice that may begin before the first element")
    return found[0]


OPERATIONS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Constant": _constant,
    "ShapeToTensor": _shape_to_tensor,
    "Reshape": _reshaped,
    "StaticReshape": _reshaped,
    "SqueezeShape": _reshaped,
    "UnsqueezeShape": _reshaped,
    "Rebind": _rebind,
    "RebindTensorShape": _rebind,
    "BroadcastTo": _broadcast,
    "Transpose": _transpose,
    "Slice": _static_slice,
    "MoSlice": _computed_slice,
    "Range": _range,
    "Concat": _concat,
    "Tile": _tile,
    "Gather": _gather,
    "MutableLoad": _mutable_load,
}
# Those whose result is their operand, seen otherwise, or known without any.
VIEWS = frozenset(OPERATIONS) - {"Range", "Concat", "Tile", "Gather"}
KERNELS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "tmb_concat": _concat_kernel,
    "tmb_reduce": _reduce,
    "tmb_cumsum": _cumsum,
    "tmb_attention": _attention,
    **dict.fromkeys(SIZE_OPERANDS, _with_size),
}
"""Kernels of this package of which a view may be taken, or whose operands may be views."""
