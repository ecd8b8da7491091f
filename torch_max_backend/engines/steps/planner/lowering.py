"""From the operations of a graph to tasks on memory: views vanish, constants are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from torch_max_backend.engines.steps.planner import control, heavier, pointwise
from torch_max_backend.engines.steps.planner.graph import Node, StepGraph, Value
from torch_max_backend.engines.steps.planner.kernels import takes_strides
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.simplify import unchanged
from torch_max_backend.engines.steps.planner.sizes import (
    Size,
    Sizes,
    dense_strides,
    product,
    quotient,
)
from torch_max_backend.engines.steps.planner.tasks import (
    Kernel,
    Lowered,
    Number,
    Pointwise,
    Reduce,
    Task,
)
from torch_max_backend.engines.steps.planner.views import View

# Constants of up to so many elements are computed when the plan is made.
FOLDED = 65536
_OPERATIONS = {**heavier.OPERATIONS, **control.OPERATIONS}


def lowered(graph: StepGraph) -> Lowered:
    """The tasks of a graph.

    Raises:
        NotPlanned: An operation has no step.
    """
    return Lowering(graph).run()


class Lowering:
    """The graph as far as it is lowered: where each value lies, and the tasks so far."""

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        self.views: dict[Value, View] = {v: View.whole(v) for v in graph.inputs}
        self.tasks: list[Task] = []
        self.constants: dict[Value, torch.Tensor] = {}
        self.sizes: dict[Value, Sizes] = {}
        self.ranges: dict[Value, tuple[Size, Size]] = {}
        self.checks: list[tuple[Size, Size]] = []
        # Small constants by content: each is kept once.
        self.same: dict[tuple[Any, ...], Value] = {}
        self.readers: dict[Value, list[Task]] = {}
        self.copies: dict[tuple[Any, ...], Value] = {}
        # Of memory that holds a dense copy what was copied.
        self.copied: dict[Value, View] = {}

    def run(self) -> Lowered:
        stores = [n for n in self.graph.nodes if n.op == "MutableStore"]
        self.lower(self.graph.nodes)
        outputs = self._outputs()
        # Nothing reads what they write: the graph stores when all else is computed.
        for node in stores:
            self._store(node)
        shapes = [v.shape for v in self.graph.outputs]
        return Lowered(
            self.tasks, outputs, shapes, self.constants, self.sizes, self.ranges, self.checks
        )

    def lower(self, nodes: Iterable[Node]) -> None:
        """Add the tasks of operations.

        Raises:
            NotPlanned: Some have no step; it names all of them.
        """
        refused: list[tuple[Any, str]] = []
        for node in nodes:
            if node.op == "MutableStore":
                continue
            try:
                self._node(node)
            except NotPlanned as e:
                inner = [(origin or node.origin, reason) for origin, reason in e.all]
                refused += inner
                for result in node.results:  # to find what else stands in the way
                    self.views[result] = View.whole(result)
        if refused:
            raise NotPlanned(refused[0][1], refused[0][0], list(dict.fromkeys(refused)))

    def apart(self, lower: Callable[[], None]) -> list[Task]:
        """The tasks of what may not run, or run often; they can use what was copied before, but no
        task elsewhere what they copy."""
        around = self.tasks, self.copies, self.readers
        self.tasks, self.copies, self.readers = [], dict(self.copies), {}
        try:
            lower()
            return self.tasks
        finally:
            self.tasks, self.copies, self.readers = around

    # Memory

    def view(self, value: Value) -> View:
        """Where a value lies."""
        return self.views[value]

    def constant(self, value: Value, tensor: torch.Tensor) -> None:
        key = None
        if tensor.numel() <= 64:
            # A copy: the strides of an expanded tensor do not let it be seen as bytes.
            data = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
            key = (value.dtype, value.shape, bytes(data.view(torch.uint8).tolist()))
        same = value if key is None else self.same.setdefault(key, value)
        self.constants.setdefault(same, tensor)
        self.views[value] = View.whole(same)

    def constant_of(self, view: View) -> torch.Tensor | None:
        """The tensor behind a view of a constant."""
        tensor = self.constants.get(view.root)
        if tensor is None or not all(
            isinstance(n, int) for n in (*view.shape, *view.strides, view.offset)
        ):
            return None
        return tensor.reshape(-1).as_strided(view.shape, view.strides, view.offset)

    def new(self, dtype: str, shape: Sizes) -> Value:
        """Memory of its own."""
        value = Value(dtype, shape)
        self.views[value] = View.whole(value)
        return value

    def add(self, task: Task) -> None:
        for view in task.reads:
            self.readers.setdefault(view.root, []).append(task)
        self.tasks.append(task)

    def copy(self, view: View, to: View, origin: Any, after: list[Task] | None = None) -> Task:
        task = self.pointwise("copy", [view], to, origin)
        task.after += after or []
        return task

    def dense(self, view: View, origin: Any) -> View:
        """The view, or a copy of it that is dense."""
        if view.is_dense():
            return view
        tensor = self.constant_of(view)
        if tensor is not None and tensor.numel() <= FOLDED:
            value = Value(view.dtype, view.shape)
            self.constant(value, tensor.contiguous())
            return self.views[value]
        key = (view.root, view.shape, view.strides, view.offset)
        if key not in self.copies:
            value = self.new(view.dtype, view.shape)
            self.copy(view, self.views[value], origin)
            self.copies[key] = value
            self.copied[value] = view
        return self.views[self.copies[key]]

    def pointwise(
        self, name: str, operands: list[View | Number], to: View, origin: Any
    ) -> Pointwise:
        keep = [i for i, n in enumerate(to.shape) if n != 1]
        task = Pointwise(
            name,
            [self._operand(o, to.shape, keep) for o in operands],
            tuple(to.shape[i] for i in keep),
            _kept(to, keep),
            to.dtype,
            origin,
        )
        self.add(task)
        return task

    def _operand(self, operand: View | Number, shape: Sizes, keep: list[int]) -> View | Number:
        if isinstance(operand, Number):
            return operand
        tensor = self.constants.get(operand.root)
        if tensor is not None and tensor.numel() == 1:
            return Number(tensor.item(), operand.dtype)
        return _kept(operand.broadcast(shape), keep)

    # Operations

    def _node(self, node: Node) -> None:
        if pointwise.is_pointwise(node):
            self._elementwise(node)
            return
        if node.op == "Custom":
            symbol = node.attributes["symbol"]
            special = getattr(self, f"_kernel_{symbol}", None)
            if special is None:
                self._kernel(node)
            else:
                special(node)
            return
        method: Callable[[Node], None] | None = getattr(self, f"_do_{node.op.lower()}", None)
        if method is not None:
            method(node)
        elif node.op in _OPERATIONS:
            _OPERATIONS[node.op](self, node)
        else:
            raise NotPlanned(f"MAX's operation {node.op}", node.origin)

    def _elementwise(self, node: Node) -> None:
        result = node.results[0]
        views = [self.view(v) for v in node.operands]
        if self._folded_sizes(node):
            return
        tensors = [self.constant_of(v) for v in views]
        count = product(result.shape)
        if all(t is not None for t in tensors) and isinstance(count, int) and count <= FOLDED:
            value = pointwise.evaluate(node, tensors)
            if value is not None:
                self.constant(result, value.expand(result.shape).contiguous())
                return
        same = unchanged(node, lambda v: self.constant_of(self.view(v)))
        if same is not None:
            self.views[result] = self.view(same)
            return
        name, operands = pointwise.instruction(node, views, self.constants)
        self.views[result] = View.whole(result)
        self.pointwise(name, operands, self.views[result], node.origin)

    def _folded_sizes(self, node: Node) -> bool:
        """Whether the node is arithmetic on sizes, which is done when they are known."""
        if node.op not in ("Add", "Sub", "Mul") or node.results[0].dtype != "int64":
            return False
        if not any(v in self.sizes for v in map(self._root, node.operands)):
            return False
        numbers = [self.numbers(v) for v in node.operands]
        if any(n is None or len(n) != 1 for n in numbers):
            return False
        (a,), (b,) = numbers
        value = a + b if node.op == "Add" else a - b if node.op == "Sub" else a * b
        self._sizes(node.results[0], (value,))
        return True

    def _root(self, value: Value) -> Value:
        return self.view(value).root

    def numbers(self, value: Value) -> Sizes | None:
        """The integers that a value holds, if they are sizes or constants."""
        view = self.view(value)
        if view.root in self.sizes and view.is_whole():
            return self.sizes[view.root]
        tensor = self.constant_of(view)
        if tensor is None or tensor.dtype not in (torch.int64, torch.int32) or tensor.numel() > 64:
            return None
        return tuple(int(n) for n in tensor.reshape(-1))

    def _sizes(self, value: Value, sizes: Sizes) -> None:
        if all(isinstance(n, int) for n in sizes):
            dtype = getattr(torch, value.dtype)
            self.constant(value, torch.tensor(sizes, dtype=dtype).reshape(value.shape))
            return
        self.sizes[value] = sizes
        self.views[value] = View.whole(value)

    def _do_constant(self, node: Node) -> None:
        self.constant(node.results[0], node.constant)

    def _do_shapetotensor(self, node: Node) -> None:
        self._sizes(node.results[0], node.attributes["sizes"])

    def _do_reshape(self, node: Node) -> None:
        self._reshape(node.operands[0], node.results[0], node.origin)

    _do_staticreshape = _do_squeezeshape = _do_unsqueezeshape = _do_reshape

    def _reshape(self, source: Value, result: Value, origin: Any) -> None:
        view = self.view(source)
        made = view.reshape(result.shape)
        if made is None:
            made = self.dense(view, origin).reshape(result.shape)
        if made is None:
            # Not known to have as many elements: it is checked when the sizes are.
            self.checks.append((product(view.shape), product(result.shape)))
            dense = self.dense(view, origin)
            made = View(dense.root, result.shape, dense_strides(result.shape), dense.offset)
        self.views[result] = made

    def _do_rebind(self, node: Node) -> None:
        view, result = self.view(node.operands[0]), node.results[0]
        for old, new in zip(view.shape, result.shape, strict=True):
            if old != new:
                self.checks.append((old, new))
        # The new names are what later operations use.
        strides = dense_strides(result.shape) if view.is_dense() else view.strides
        self.views[result] = View(view.root, result.shape, strides, view.offset)

    _do_rebindtensorshape = _do_rebind

    def _do_broadcastto(self, node: Node) -> None:
        result = node.results[0]
        view = self.view(node.operands[0]).broadcast(result.shape)
        tensor = self.constant_of(view)
        if tensor is not None and tensor.numel() == 0:
            self.constant(result, tensor.contiguous())
        else:
            self.views[result] = view

    def _do_transpose(self, node: Node) -> None:
        order = self.numbers(node.operands[1])
        if order is None:
            raise NotPlanned("a transpose whose order is computed")
        self.views[node.results[0]] = self.view(node.operands[0]).transpose([int(i) for i in order])

    def _do_slice(self, node: Node) -> None:
        found = node.attributes
        self._slice(node, found["starts"], found["stops"], found["steps"])

    def _do_moslice(self, node: Node) -> None:
        starts, stops, steps = (self.numbers(v) for v in node.operands[1:4])
        if starts is None or stops is None or steps is None:
            raise NotPlanned("a slice whose bounds are computed")
        self._slice(node, starts, stops, steps)

    def _slice(self, node: Node, starts: Sizes, stops: Sizes, steps: Sizes) -> None:
        known = [s for s in steps if isinstance(s, int)]
        if len(known) != len(steps):
            raise NotPlanned("a slice whose step is symbolic")
        view, result = self.view(node.operands[0]), node.results[0]
        if any(n == 0 for n in result.shape):
            self.views[result] = View.whole(result)
            return
        found = tuple(map(_begin, starts, stops, known, view.shape, result.shape))
        self.views[result] = view.slice(found, result.shape, known)

    def _do_range(self, node: Node) -> None:
        result = node.results[0]
        numbers = [self.numbers(v) for v in node.operands]
        if any(n is None or len(n) != 1 for n in numbers) or result.dtype != "int64":
            tensors = [self.constant_of(self.view(v)) for v in node.operands]
            if all(t is not None for t in tensors) and all(
                isinstance(n, int) for n in result.shape
            ):
                start, _, step = (t.item() for t in tensors)
                dtype = getattr(torch, result.dtype)
                values = start + torch.arange(result.shape[0], dtype=dtype) * step
                self.constant(result, values.to(dtype))
                return
            raise NotPlanned("a range whose bounds are computed")
        (start,), _, (step,) = numbers
        if all(isinstance(n, int) for n in (start, step, result.shape[0])):
            self.constant(result, start + torch.arange(result.shape[0]) * step)
            return
        self.ranges[result] = (start, step)
        self.views[result] = View.whole(result)

    def _do_concat(self, node: Node) -> None:
        self._concatenate(node, node.attributes["axis"])

    def _kernel_tmb_concat(self, node: Node) -> None:
        self._concatenate(node, node.attributes["parameters"]["axis"])

    def _concatenate(self, node: Node, axis: int) -> None:
        result = node.results[0]
        axis %= result.rank
        tensors = [self.constant_of(self.view(v)) for v in node.operands]
        if all(t is not None for t in tensors) and sum(t.numel() for t in tensors) <= FOLDED:
            self.constant(result, torch.cat(tensors, axis))
            return
        numbers = [self.numbers(v) for v in node.operands] if result.rank == 1 else [None]
        if all(n is not None for n in numbers):
            self._sizes(result, tuple(n for part in numbers for n in part))
            return
        whole = self.views[result] = View.whole(result)
        at: Any = 0
        for value in node.operands:
            view = self.view(value)
            if view.shape[axis] == 0:
                continue
            starts = tuple(at if i == axis else 0 for i in range(result.rank))
            self.copy(view, whole.slice(starts, view.shape, [1] * result.rank), node.origin)
            at = at + view.shape[axis]

    def _do_tile(self, node: Node) -> None:
        result, view = node.results[0], self.view(node.operands[0])
        repeats = self.numbers(node.operands[1])
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
        self.views[result] = (
            self.dense(between, node.origin).reshape(result.shape) if made is None else made
        )

    def _do_gather(self, node: Node) -> None:
        """Rows along an axis: ``[outer, n, inner]`` by ``[count]`` to ``[outer, count, inner]``."""
        table, index = (self.view(v) for v in node.operands[:2])
        result = node.results[0]
        axis = node.attributes["axis"] % len(table.shape)
        count = product(index.shape)
        tensor = self.constant_of(index)
        if tensor is not None and tensor.numel() == 1:
            # One constant index: a view.
            at = int(tensor.item())
            size = table.shape[axis]
            shape = tuple(1 if i == axis else n for i, n in enumerate(table.shape))
            starts = tuple(
                (at + size if at < 0 else at) if i == axis else 0 for i in range(len(shape))
            )
            one = table.slice(starts, shape, [1] * len(shape)).reshape(result.shape)
            if one is not None:
                self.views[result] = one
                return
        outer, inner = product(table.shape[:axis]), product(table.shape[axis + 1 :])
        rows = self.dense(table, node.origin).reshape((outer, table.shape[axis], inner))
        flat = self.dense(index, node.origin).reshape((count,))
        self.views[result] = View.whole(result)
        to = self.views[result].reshape((outer, count, inner))
        self.add(Kernel("tmb_take", {}, [to], [rows, flat], node.origin))

    def _do_mutableload(self, node: Node) -> None:
        source = self.view(node.operands[0])
        self.views[node.results[0]] = source

    def _store(self, node: Node) -> None:
        buffer, value = node.operands[:2]
        to, view = self.view(buffer), self.view(value)
        if view.root is to.root and view.is_whole():
            return
        if view.root is to.root:
            view = View.whole(self._copied(view, node.origin))
        before = list(self.readers.get(to.root, ()))
        self.copy(view, to, node.origin, before)

    def _copied(self, view: View, origin: Any) -> Value:
        value = self.new(view.dtype, view.shape)
        self.copy(view, self.views[value], origin)
        return value

    def _kernel_tmb_reduce(self, node: Node) -> None:
        parameters = node.attributes["parameters"]
        view, result = self.view(node.operands[0]), node.results[0]
        kind = parameters["kind"]
        whole = self.views[result] = View.whole(result)
        axis = len(view.shape) - (2 if parameters["beside"] else 1)
        if view.shape[axis] == 1:
            self.copy(view, whole, node.origin)
            return
        keep = [i for i, n in enumerate(view.shape) if n != 1 and i != axis]
        operand = _kept(view, [*keep, axis])
        if parameters["beside"] and any(n != 1 for n in view.shape[axis + 1 :]):
            outer, inner = product(view.shape[:axis]), view.shape[axis + 1]
            rows = self.dense(view, node.origin).reshape((outer, view.shape[axis], inner))
            to = whole.reshape((outer, 1, inner))
            self.add(
                Kernel("tmb_reduce", {"kind": kind, "beside": True}, [to], [rows], node.origin)
            )
            return
        to = _kept(whole, keep)
        self.add(Reduce(kind, operand, to, node.origin))

    def _kernel_tmb_attention(self, node: Node) -> None:
        """Keys and values whose heads were repeated for the queries are taken as they were before:
        the kernel takes fewer heads of them."""
        seen = {}
        for operand, swapped in ((1, 7), (2, 8)):
            turned = self.numbers(node.operands[swapped])
            view = self.view(node.operands[operand])
            if turned is not None:
                found = self._before_repeat(view, 2 if turned[0] else 1)
                seen[operand] = view if found is None else found
        self._kernel(node, seen)

    def _before_repeat(self, view: View, axis: int) -> View | None:
        """What a view is a dense copy of, if along an axis each element stands there several times,
        next to each other; with each once, or ``None``."""
        source = self.copied.get(view.root)
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
                return _kept(made, keep)
        return None

    def _kernel(self, node: Node, seen: Mapping[int, View] | None = None) -> None:
        """A call of a kernel.

        Args:
            node: The operation.
            seen: Operands that lie elsewhere than their values do, by number.
        """
        symbol, parameters = node.attributes["symbol"], node.attributes["parameters"]
        inputs = []
        for i, value in enumerate(node.operands):
            view = (seen or {}).get(i, self.view(value))
            if not takes_strides(symbol, i, view):
                view = self.dense(view, node.origin)
            inputs.append(view)
        for result in node.results:
            self.views[result] = View.whole(result)
        outputs = [self.views[r] for r in node.results]
        self.add(Kernel(symbol, parameters, outputs, inputs, node.origin))

    # Results

    def _outputs(self) -> list[Value]:
        """The memory of the results: dense, each its own, none of it an argument's."""
        own = set(self.graph.inputs) | set(self.constants) | set(self.sizes) | set(self.ranges)
        taken: set[Value] = set()
        outputs = []
        for value in self.graph.outputs:
            view = self.view(value)
            if view.root in own or view.root in taken or not view.is_whole():
                copied = Value(view.dtype, view.shape)
                self.views[copied] = View.whole(copied)
                # An argument's old value, if it is written to: before that.
                self.copy(view, self.views[copied], None)
                outputs.append(copied)
                taken.add(copied)
            else:
                outputs.append(view.root)
                taken.add(view.root)
        return outputs


def _kept(view: View, keep: list[int]) -> View:
    """The view without the other dims, which have one element."""
    return View(
        view.root,
        tuple(view.shape[i] for i in keep),
        tuple(view.strides[i] for i in keep),
        view.offset,
    )


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
