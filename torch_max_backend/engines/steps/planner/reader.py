"""Builds the MAX graph of a trace without a kernel library, and reads it as plain Python.

Nothing is compiled here: kernels are names, so neither the precompiled packages nor MAX's own are
loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from max.graph import DeviceRef, Graph, KernelLibrary, TensorValue, ops
from torch.fx import Node as FxNode

from torch_max_backend.compat.max_graphs import Operation
from torch_max_backend.convert.context import converting_node
from torch_max_backend.convert.converter import build_graph
from torch_max_backend.convert.fusion_barriers import GuardedGraph
from torch_max_backend.convert.repeated_subgraphs import Repeat
from torch_max_backend.engines.steps.planner.graph import Block, Node, StepGraph, Value
from torch_max_backend.engines.steps.planner.operations import (
    attributes_of,
    constant_of,
    dtype_of,
    is_tensor,
    name_of,
    operands_of,
    sizes_of,
)
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.graph.repeated_subgraphs import Instance
from torch_max_backend.graph.trace import Trace
from torch_max_backend.process import fork_safety

_SKIPPED = frozenset({"ChainCreate"})
_ENDS = frozenset({"Output", "Yield", "WhileCondition"})


class _Unverified(KernelLibrary):
    """Takes every kernel for known: no package is read. Nor is MAX's context made, with
    its threads: nothing here needs it."""

    def __init__(self) -> None:
        pass

    def library_paths(self) -> list[Any]:
        return []

    def load_paths(self, custom_extensions: Iterable[Any]) -> None:
        pass

    def __contains__(self, kernel: str) -> bool:
        return True

    def verify_custom_op(self, custom_op: Any) -> None:
        pass

    def has_shape_function(self, kernel: str) -> bool:
        return True


# What stands in the graph for the inputs of a region, behind its operations, and for an equal one.
_VEIL, _KEPT, _REPEATED = "tmb_region_inputs", "tmb_region_end", "tmb_region_again"


@dataclass
class _Notes:
    """What a graph remembers of how it was made.

    Attributes:
        origins: The FX node that each value is from.
        repeats: The types of what the first instances make.
        instances: The others, by the number at their places.
    """

    origins: dict[Any, FxNode | None] = field(default_factory=dict)
    repeats: dict[Repeat, Sequence[Any]] = field(default_factory=dict)
    instances: list[tuple[Repeat, Instance]] = field(default_factory=list)


class _Recorded(GuardedGraph):
    """A graph that remembers which FX node each operation is from. MAX's fusion never sees it, so
    nothing has to be guarded from that."""

    own_functions = True

    def _populate_device_info_mapping(self) -> None:
        """Nothing: that is for MAX's compiler."""

    def _add_op_generated(self, op_type: Any, *args: Any, **kwargs: Any) -> list[Any]:
        results = Graph._add_op_generated(self, op_type, *args, **kwargs)
        self._remember(results)
        return results

    def _add_op_get_op_with_results(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        results, operation = Graph._add_op_get_op_with_results(self, op, *args, **kwargs)
        self._remember(results)
        return results, operation

    def _remember(self, results: Iterable[Any]) -> None:
        node = converting_node()
        origins = self.notes.origins
        for result in results:
            origins[getattr(result, "_mlir_value", None)] = node

    @property
    def notes(self) -> _Notes:
        # The constructor of a graph adds operations already.
        return self.__dict__.setdefault("_notes", _Notes())

    # Of ``convert.repeats.RepeatingGraph``

    def veiled(self, values: Sequence[TensorValue]) -> list[TensorValue]:
        return self._mark(_VEIL, 0, values, [v.type for v in values])

    def keep(self, repeat: Repeat, results: Sequence[TensorValue]) -> None:
        self.notes.repeats[repeat] = [v.type for v in results]
        self._mark(_KEPT, 0, results, [])

    def repeat(
        self, repeat: Repeat, instance: Instance, given: Sequence[TensorValue]
    ) -> list[TensorValue]:
        notes = self.notes
        notes.instances.append((repeat, instance))
        return self._mark(_REPEATED, len(notes.instances) - 1, given, notes.repeats[repeat])

    def _mark(
        self, symbol: str, number: int, values: Sequence[TensorValue], types: Sequence[Any]
    ) -> list[TensorValue]:
        made = ops.custom(symbol, DeviceRef.CPU(), values, types, {"number": number})
        return [v.tensor for v in made]


def graph_of(trace: Trace) -> StepGraph:
    """The MAX graph of a trace, as the planner takes it.

    Raises:
        ConversionError: A lowering failed.
        NotPlanned: It holds an operation that cannot be read.
    """
    fork_safety.build()
    calls, trace.calls = trace.calls, False
    try:
        graph = build_graph(trace, "steps", _Unverified(), graph_type=_Recorded)
    finally:
        trace.calls = calls
    return _Reader(graph.notes).read(graph)


@dataclass
class _Converted:
    """The first instance of a region, as it was read.

    Attributes:
        nodes: Its operations.
        veils: What stands in them for its inputs.
        results: What it makes.
    """

    nodes: list[Node]
    veils: list[Value]
    results: list[Value]


class _Reader:
    def __init__(self, notes: _Notes) -> None:
        self.origins = notes.origins
        self.instances = notes.instances
        self.values: dict[Any, Value] = {}
        self.nodes: list[Node] = []
        self.veiled: dict[Value, Value] = {}
        self.begun: tuple[int, list[Value]] = 0, []
        self.converted: list[_Converted] = []
        self.places = {repeat: i for i, repeat in enumerate(notes.repeats)}

    def read(self, graph: Graph) -> StepGraph:
        block = Operation._from_cmlir(graph._mlir_op).regions[0].front
        inputs, mutable = [], set()
        for i, argument in enumerate(block.arguments):
            if not is_tensor(argument):
                continue
            if type(argument.type).__name__ == "BufferType":
                mutable.add(i)
            inputs.append(self._value(argument, None, i))
        outputs = self._block(block)
        for node in self.nodes if self.veiled else ():
            node.operands = self._unveiled(node.operands)
        return StepGraph(inputs, frozenset(mutable), self.nodes, self._unveiled(outputs))

    def _block(self, block: Any) -> list[Value]:
        """Read the operations of a block; what it returns or yields."""
        result: list[Value] = []
        for operation in block:
            name = name_of(operation)
            if name in _ENDS:
                result = self._known(operation)
            elif name == "Sequence":
                self._sequence(operation)
            elif name not in _SKIPPED:
                self._operation(operation, name)
        return result

    def _sequence(self, operation: Any) -> None:
        """What runs in a sequence of its own runs in order like all else."""
        inner = operation.regions[0].front
        for argument, operand in zip(inner.arguments, operands_of(operation), strict=False):
            if operand in self.values:
                self.values[argument] = self.values[operand]
        for result, value in zip(operation.results, self._block(inner), strict=False):
            self.values[result] = value

    def _operation(self, operation: Any, name: str) -> None:
        operands = self._known(operation)
        if len(operation.regions):
            if name not in ("If", "While"):
                raise NotPlanned(f"control flow ({name})", self._origin(operation))
            blocks = [self._inner(region.front) for region in operation.regions]
            self._add(
                Node(name, operands, origin=self._origin(operation), blocks=blocks), operation
            )
            return
        attributes = attributes_of(operation, name)
        if name == "Custom" and attributes["symbol"] in _MARKS:
            _MARKS[attributes["symbol"]](self, operation, operands, attributes["parameters"])
            return
        node = Node(name, operands, attributes=attributes, origin=self._origin(operation))
        if name == "Constant":
            node.constant = constant_of(operation)
        self._add(node, operation)

    def _add(self, node: Node, operation: Any) -> None:
        for i, result in enumerate(operation.results):
            if is_tensor(result):
                node.results.append(self._value(result, node, i))
        self.nodes.append(node)

    def _inner(self, block: Any) -> Block:
        """A branch, or a part of a loop."""
        around, self.nodes = self.nodes, []
        arguments = [self._value(a, None, i) for i, a in enumerate(block.arguments) if is_tensor(a)]
        results = self._block(block)
        found, self.nodes = Block(arguments, self.nodes, results), around
        return found

    def _known(self, operation: Any) -> list[Value]:
        """The tensors that an operation takes; the chains that order others are none."""
        return [self.values[v] for v in operands_of(operation) if v in self.values]

    # Regions that repeat

    def _begin(self, operation: Any, operands: list[Value], _: Any) -> None:
        veils = [self._value(r, None, i) for i, r in enumerate(operation.results)]
        self.veiled.update(zip(veils, operands, strict=True))
        self.begun = len(self.nodes), veils

    def _end(self, operation: Any, operands: list[Value], _: Any) -> None:
        start, veils = self.begun
        self.converted.append(_Converted(self.nodes[start:], veils, operands))

    def _again(self, operation: Any, operands: list[Value], parameters: Any) -> None:
        """The operations of the first instance once more, from other inputs."""
        repeat, instance = self.instances[parameters["number"]]
        first = self.converted[self.places[repeat]]
        twins = dict(zip(repeat.first.nodes, instance.nodes, strict=True))
        values = dict(zip(first.veils, operands, strict=True))
        for node in first.nodes:
            if node.op == "Constant":
                continue  # is there
            made = Node(
                node.op,
                [values.get(v, v) for v in node.operands],
                attributes=node.attributes,
                origin=twins.get(node.origin, node.origin),
            )
            for result in node.results:
                value = Value(result.dtype, result.shape, made, result.index)
                values[result] = value
                made.results.append(value)
            self.nodes.append(made)
        for result, value in zip(operation.results, first.results, strict=True):
            self.values[result] = values.get(value, value)

    def _unveiled(self, values: list[Value]) -> list[Value]:
        found = []
        for value in values:
            while value in self.veiled:
                value = self.veiled[value]
            found.append(value)
        return found

    def _origin(self, operation: Any) -> FxNode | None:
        for result in operation.results:
            if result in self.origins:
                return self.origins[result]
        return None

    def _value(self, found: Any, node: Node | None, index: int) -> Value:
        kind = found.type
        value = Value(dtype_of(kind.dtype), sizes_of(kind.shape), node, index)
        self.values[found] = value
        return value


_MARKS = {_VEIL: _Reader._begin, _KEPT: _Reader._end, _REPEATED: _Reader._again}
