"""MAX's operations that move or combine elements: as copies, and as calls of our kernels.

What the lowerings of ``ops`` build with kernels of this package is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from torch_max_backend.engines.steps.planner.graph import Node, Value
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.sizes import Expr, Sizes, product
from torch_max_backend.engines.steps.planner.tasks import Kernel, Number, Reduce
from torch_max_backend.engines.steps.planner.views import View

if TYPE_CHECKING:
    from torch_max_backend.engines.steps.planner.lowering import Lowering

# Dims that a padding by what is there pads at most.
_PADDED = 3


def _pad_constant(lowering: Lowering, node: Node) -> None:
    result = node.results[0]
    value = lowering.constant_of(lowering.view(node.operands[2]))
    if value is None:
        raise NotPlanned("a padding whose value is computed")
    padding = _padding(lowering, node)
    view, whole = lowering.view(node.operands[0]), View.whole(result)
    lowering.views[result] = whole
    if product(view.shape) == product(whole.shape):
        lowering.views[result] = view
        return
    fill = lowering.pointwise("copy", [Number(value.item(), result.dtype)], whole, node.origin)
    starts = tuple(before for before, _ in padding)
    lowering.copy(view, whole.slice(starts, view.shape, [1] * result.rank), node.origin, [fill])


def _pad_repeating(reflects: bool) -> Callable[[Lowering, Node], None]:
    def pad(lowering: Lowering, node: Node) -> None:
        result, view = node.results[0], lowering.view(node.operands[0])
        padding = _padding(lowering, node)
        if not any(before or after for before, after in padding):
            lowering.views[result] = view
            return
        if any(before or after for before, after in padding[:-_PADDED]):
            raise NotPlanned("a padding of more than three dims")
        fewer = max(_PADDED - result.rank, 0)
        befores = [0] * fewer + [before for before, _ in padding[-_PADDED:]]
        whole = lowering.views[result] = View.whole(result)
        lines = lowering.dense(view, node.origin).reshape(_volumes(view.shape, fewer))
        to = whole.reshape(_volumes(whole.shape, fewer))
        if lines is None or to is None:
            raise NotPlanned("a padding of this shape")
        numbers = [_number(lowering, n) for n in (*befores, int(reflects))]
        lowering.add(Kernel("tmb_padded", {}, [to], [lines, *numbers], node.origin))

    return pad


def _volumes(shape: Sizes, fewer: int) -> Sizes:
    """A shape of four dims, of which the last three are padded."""
    return (product(shape[:-_PADDED]), *[1] * fewer, *shape[-_PADDED:])


def _padding(lowering: Lowering, node: Node) -> list[tuple[int, int]]:
    """How much is added before and after, of each dim."""
    found = lowering.numbers(node.operands[1])
    if found is None:
        raise NotPlanned("a padding whose width is computed")
    widths = [n for n in found if not isinstance(n, Expr) and n >= 0]
    if len(widths) != len(found):
        raise NotPlanned("a padding of negative or symbolic width")
    return list(zip(widths[::2], widths[1::2], strict=True))


def _reduction(kind: str) -> Callable[[Lowering, Node], None]:
    def reduce(lowering: Lowering, node: Node) -> None:
        view, result = lowering.view(node.operands[0]), node.results[0]
        axis = node.attributes["axis"] % result.rank
        order = [i for i in range(result.rank) if i != axis]
        whole = lowering.views[result] = View.whole(result)
        if view.shape[axis] == 1:
            lowering.copy(view, whole, node.origin)
            return
        kept = [i for i in order if view.shape[i] != 1]
        operand, to = view.transpose([*kept, axis]), whole.transpose(kept)
        lowering.add(Reduce(kind, operand, to, node.origin))

    return reduce


def _cumsum(lowering: Lowering, node: Node) -> None:
    if node.attributes.get("exclusive") or node.attributes.get("reverse"):
        raise NotPlanned("running sums that leave out or turn")
    view, result = lowering.view(node.operands[0]), node.results[0]
    axis = node.attributes["axis"] % result.rank
    shape = (product(view.shape[:axis]), view.shape[axis], product(view.shape[axis + 1 :]))
    lines = lowering.dense(view, node.origin).reshape(shape)
    whole = lowering.views[result] = View.whole(result)
    to = whole.reshape(shape)
    if lines is None or to is None:
        raise NotPlanned("running sums of this shape")
    lowering.add(Kernel("tmb_cumsum", {}, [to], [lines], node.origin))


def _scatter_nd(lowering: Lowering, node: Node) -> None:
    """Of indices of one number each: of rows."""
    view, source, index = (lowering.view(v) for v in node.operands[:3])
    result = node.results[0]
    if len(index.shape) != 2 or index.shape[1] != 1:
        raise NotPlanned("a scatter by indices of several numbers")
    rows, count, inner = view.shape[0], index.shape[0], product(view.shape[1:])
    whole = lowering.views[result] = View.whole(result)
    shaped = [
        lowering.dense(v, node.origin).reshape(shape)
        for v, shape in (
            (view, (1, rows, inner)),
            (index, (count,)),
            (source, (1, count, inner)),
        )
    ]
    to = whole.reshape((1, rows, inner))
    if to is None or any(v is None for v in shaped):
        raise NotPlanned("a scatter of this shape")
    # Indices wrap, and none is left out.
    numbers = [_number(lowering, n) for n in (1, -1, 1)]
    inputs = [v for v in shaped if v is not None]
    kind = {"kind": "write"}
    lowering.add(Kernel("tmb_scatter_rows", kind, [to], inputs + numbers, node.origin))


def _number(lowering: Lowering, number: int) -> View:
    """An int64 that a kernel takes."""
    value = Value("int64", ())
    lowering.constant(value, torch.tensor(number))
    return lowering.view(value)


def _buffer_create(lowering: Lowering, node: Node) -> None:
    """Memory for what is checked in place: nothing reads it."""
    lowering.views[node.results[0]] = View.whole(node.results[0])


OPERATIONS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "PadConstant": _pad_constant,
    "PadRepeat": _pad_repeating(False),
    "PadReflect": _pad_repeating(True),
    "ReduceAdd": _reduction("sum"),
    "ReduceMul": _reduction("prod"),
    "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"),
    "Cumsum": _cumsum,
    "ScatterNd": _scatter_nd,
    "BufferCreate": _buffer_create,
}
