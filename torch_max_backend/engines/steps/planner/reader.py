"""Builds the MAX graph of a trace without a kernel library, and reads it as plain Python.

Nothing is compiled here: kernels are names, so neither the precompiled packages nor MAX's own are
loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from max._core import Operation
from max.dtype import DType
from max.graph import DeviceRef, Graph, KernelLibrary, StaticDim, TensorValue, ops
from torch.fx import Node as FxNode

from torch_max_backend.convert.context import converting_node
from torch_max_backend.convert.converter import build_graph
from torch_max_backend.convert.fusion_barriers import GuardedGraph
from torch_max_backend.convert.repeated_subgraphs import Repeat
from torch_max_backend.engines.steps.planner.graph import Block, Node, StepGraph, Value
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.sizes import Expr, Size, Sizes
from torch_max_backend.graph.repeated_subgraphs import Instance
from torch_max_backend.graph.signature import Trace
from torch_max_backend.max_dtypes import MAX_TO_TORCH
from torch_max_backend.process import fork_safety

# Operations whose class has no name of its own in MAX's Python bindings.
# "Operation(%1 = rmo.mo.not(", or "Operation(mo.while.condition(".
_NAME = re.compile(r"Operation\((?:%[^=]*= )?(?:r?mo\.)?([a-z_.]+)")
_AXIS = re.compile(r"axis = (-?\d+)")
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
            if not _is_tensor(argument):
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
            name = _name(operation)
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
        for argument, operand in zip(inner.arguments, _operands(operation), strict=False):
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
        attributes = _attributes(operation, name)
        if name == "Custom" and attributes["symbol"] in _MARKS:
            _MARKS[attributes["symbol"]](self, operation, operands, attributes["parameters"])
            return
        node = Node(name, operands, attributes=attributes, origin=self._origin(operation))
        if name == "Constant":
            node.constant = _constant(operation)
        self._add(node, operation)

    def _add(self, node: Node, operation: Any) -> None:
        for i, result in enumerate(operation.results):
            if _is_tensor(result):
                node.results.append(self._value(result, node, i))
        self.nodes.append(node)

    def _inner(self, block: Any) -> Block:
        """A branch, or a part of a loop."""
        around, self.nodes = self.nodes, []
        arguments = [
            self._value(a, None, i) for i, a in enumerate(block.arguments) if _is_tensor(a)
        ]
        results = self._block(block)
        found, self.nodes = Block(arguments, self.nodes, results), around
        return found

    def _known(self, operation: Any) -> list[Value]:
        """The tensors that an operation takes; the chains that order others are none."""
        return [self.values[v] for v in _operands(operation) if v in self.values]

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
        value = Value(_dtype(kind.dtype), _sizes(kind.shape), node, index)
        self.values[found] = value
        return value


_MARKS = {_VEIL: _Reader._begin, _KEPT: _Reader._end, _REPEATED: _Reader._again}


def _is_tensor(value: Any) -> bool:
    return type(value.type).__name__ in ("TensorType", "BufferType")


def _operands(operation: Any) -> list[Any]:
    """The values that an operation takes; the bindings wrap them for some kinds of operation."""
    return [getattr(o, "value", o) for o in operation.operands]


def _name(operation: Any) -> str:
    name = type(operation).__name__
    if name != "Operation":
        if name == "MoSliceOp":
            return "MoSlice"  # its bounds are operands, those of a slice attributes
        # "MoTranspose", but "Mod" is an operation of its own.
        return re.sub("^Mo(?=[A-Z])", "", name.removesuffix("Op"))
    found = _NAME.match(str(operation))
    words = found[1].replace("mo.", "").split(".") if found else ["Unknown"]
    return "".join(w.title() for part in words for w in part.split("_"))


def _attributes(operation: Any, name: str) -> dict[str, Any]:
    if name == "Custom":
        return {
            "symbol": str(operation.symbol),
            "parameters": _parameters(operation.parameters),
        }
    if name == "Slice":
        return {
            "starts": _sizes(operation.starts),
            "stops": _sizes(operation.stops),
            "steps": _sizes(operation.steps),
        }
    if name == "ShapeToTensor":
        return {"sizes": _sizes(operation.shape)}
    if type(operation).__name__ == "Operation":
        axis = _AXIS.search(str(operation))
        return {} if axis is None else {"axis": int(axis[1])}
    found = {}
    for key in ("axis", "exclusive", "reverse"):
        value = getattr(operation, key, None)
        if value is not None:
            found[key] = int(value) if isinstance(value, int) else int(_number(value))
    return found


def _number(attribute: Any) -> int:
    """The value of an attribute that is one number."""
    value = getattr(attribute, "value", attribute)
    return int(value)


def _parameters(attribute: Any) -> dict[str, Any]:
    """The compile-time parameters of a kernel."""
    if attribute is None:
        return {}
    return {str(getattr(k, "value", k)): _parameter(v) for k, v in _items(attribute.value)}


def _items(entries: Any) -> Iterable[tuple[Any, Any]]:
    if hasattr(entries, "items"):
        return entries.items()
    return [(e.name, e.value) for e in entries]


def _parameter(attribute: Any) -> Any:
    kind = type(attribute).__name__
    value = getattr(attribute, "value", None)
    if kind == "StringAttr":
        return str(value)
    if kind == "BoolAttr":
        return bool(value)
    if kind == "IntegerAttr":
        text = str(getattr(attribute, "asm", attribute))
        if text in ("true", "false") or text.endswith(": i1"):
            return bool(value)
        return int(value)
    if kind == "UnitAttr":
        return True
    return str(getattr(attribute, "asm", attribute))


def _constant(operation: Any) -> torch.Tensor:
    kind = operation.results[0].type
    data = getattr(operation.value, "data", None)
    if data is None or getattr(data, "data", None) is None:
        raise NotPlanned("a constant in a form that cannot be read")
    raw = bytearray(bytes(b & 255 for b in data.data))
    shape = [int(n) for n in _sizes(kind.shape)]
    dtype = MAX_TO_TORCH[kind.dtype]
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).clone().reshape(shape)


def _dtype(dtype: DType) -> str:
    return dtype.name


def _sizes(shape: Any) -> Sizes:
    return tuple(_size(v) for v in shape.values)


def _size(attribute: Any) -> Size:
    kind = type(attribute).__name__
    if kind == "SIMDAttr":
        return int(StaticDim(attribute))
    if kind == "ParamDeclRefAttr":
        return Expr.symbol(str(getattr(attribute.name, "value", attribute.name)))
    if kind == "ParamOperatorAttr":
        opcode = str(getattr(attribute.opcode, "name", attribute.opcode)).split(".")[-1]
        operands = [_size(o) for o in attribute.operands]
        return _apply(opcode, operands)
    raise NotPlanned(f"a size of another kind ({attribute})")


def _apply(opcode: str, operands: list[Size]) -> Size:
    first, *rest = operands
    result: Any = first
    for other in rest:
        if opcode.startswith("add"):
            result = result + other
        elif opcode.startswith("mul"):
            result = result * other
        elif opcode.startswith("div"):
            result = result // other
        else:
            raise NotPlanned(f"the operation {opcode!r} on sizes")
    return result
