"""From the operations of a graph to tasks on memory: views vanish, constants are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from torch_max_backend.engines.steps.planner import (
    constant_folding,
    control,
    heavier,
    movement,
    pointwise,
)
from torch_max_backend.engines.steps.planner.graph import Node, StepGraph, Value
from torch_max_backend.engines.steps.planner.kernels import takes_strides
from torch_max_backend.engines.steps.planner.movement import FOLDED
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.simplify import unchanged
from torch_max_backend.engines.steps.planner.sizes import (
    Size,
    Sizes,
    product,
)
from torch_max_backend.engines.steps.planner.tasks import (
    Kernel,
    Lowered,
    Number,
    Pointwise,
    Task,
)
from torch_max_backend.engines.steps.planner.views import View, kept

_OPERATIONS = {**movement.OPERATIONS, **heavier.OPERATIONS, **control.OPERATIONS}


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
            kept(to, keep),
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
        return kept(operand.broadcast(shape), keep)

    # Operations

    def _node(self, node: Node) -> None:
        if pointwise.is_pointwise(node):
            self._elementwise(node)
            return
        if node.op == "Custom":
            special = movement.KERNELS.get(node.attributes["symbol"])
            if special is None:
                self.kernel(node)
            else:
                special(self, node)
            return
        if node.op in _OPERATIONS:
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
            value = constant_folding.evaluate(node, tensors)
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
        numbers = [n[0] for v in node.operands if (n := self.numbers(v)) and len(n) == 1]
        if len(numbers) != 2:
            return False
        a, b = numbers
        value = a + b if node.op == "Add" else a - b if node.op == "Sub" else a * b
        self.set_sizes(node.results[0], (value,))
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

    def set_sizes(self, value: Value, sizes: Sizes) -> None:
        """Let a value be sizes, which are computed when they are known."""
        if all(isinstance(n, int) for n in sizes):
            dtype = getattr(torch, value.dtype)
            self.constant(value, torch.tensor(sizes, dtype=dtype).reshape(value.shape))
            return
        self.sizes[value] = sizes
        self.views[value] = View.whole(value)

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

    def kernel(self, node: Node, seen: Mapping[int, View] | None = None) -> None:
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
