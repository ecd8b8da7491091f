"""From a traced ATen graph to a MAX graph, node by node, through the registry."""

from __future__ import annotations

import operator

import torch
from max.dtype import DType
from max.graph import (
    BufferType,
    DeviceRef,
    Dim,
    Graph,
    KernelLibrary,
    Module,
    TensorType,
    TensorValue,
    ops,
)
from torch.fx import Node

from torch_max_backend.convert.fusion_barriers import GuardedGraph
from torch_max_backend.convert.mutable_inputs import WrittenArguments
from torch_max_backend.convert.nodes import NodeConverter, instance_number, is_static
from torch_max_backend.convert.repeated_subgraphs import Repeat, RepeatingGraph, repeat_of
from torch_max_backend.graph.capability import is_skipped
from torch_max_backend.graph.nested import CONTROL_FLOW
from torch_max_backend.graph.repeated_subgraphs import Instance, Region, find_regions, pieces
from torch_max_backend.graph.serialize import text_of
from torch_max_backend.graph.shapes import is_scalar_node
from torch_max_backend.graph.signature_schema import Layout
from torch_max_backend.graph.trace import Trace, attribute
from torch_max_backend.max_dtypes import max_dtype
from torch_max_backend.registry.lowerings import registry

_SCALAR_DTYPES = {"int64": DType.int64, "float64": DType.float64, "bool": DType.bool}
_CARRIER_DTYPE = DType.int8


def build_graph(
    trace: Trace,
    name: str,
    kernel_library: KernelLibrary | None = None,
    module: Module | None = None,
    graph_type: type[GuardedGraph] = GuardedGraph,
) -> Graph:
    """Build the MAX graph of a trace, inside ``module`` if one is given.

    Raises:
        ConversionError: A lowering failed, or built something other than torch's metadata says.
        UnsupportedError: A dtype, device or operator has no conversion.
    """
    builder = _Builder(trace)
    types = builder.input_types()
    with graph_type(name, input_types=types, module=module, kernel_library=kernel_library) as graph:
        builder.bind_inputs(graph)
        builder.convert_nodes(graph)
        graph.output(*builder.outputs())
    return graph


class _Builder(NodeConverter):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.written = WrittenArguments()
        self.subgraphs: dict[Region, Graph] = {}
        # Something of each symbolic size, so that every subgraph knows it.
        self.witnesses: list[TensorValue] = []

    # Inputs

    def input_types(self) -> list[TensorType | BufferType]:
        types: list[TensorType | BufferType] = []
        cpu = DeviceRef.CPU()
        for i, item in enumerate(self.trace.signature.inputs):
            if item.kind == "tensor":
                spec = self.spec(self._bound(item.index).meta["val"])
                shape = [
                    # MAX takes no expressions in signatures: a name of its own, rebound inside.
                    s if isinstance(s, int) or _is_symbol(s) else Dim(f"in{i}_{axis}")
                    for axis, s in enumerate(spec.shape)
                ]
                make = BufferType if item.mutated else TensorType
                types.append(make(spec.dtype, shape, spec.device))
            elif item.kind == "constant":
                spec = self.spec(attribute(self.trace.module, item.source))
                types.append(TensorType(spec.dtype, spec.shape, spec.device))
            elif item.kind == "carrier":
                dim = self.symbols.carried.get(item.source, item.source)
                types.append(TensorType(_CARRIER_DTYPE, (Dim(dim), 0), cpu))
            elif item.kind in ("address", "seed"):
                types.append(TensorType(DType.int64, (), cpu))
            else:
                types.append(TensorType(_SCALAR_DTYPES[item.dtype], (), cpu))
        return types

    def bind_inputs(self, graph: Graph) -> None:
        constants = {
            str(n.target): n
            for n in self.trace.module.graph.nodes
            if n.op == "get_attr" and n not in self.trace.embedded
        }
        for item, value in zip(self.trace.signature.inputs, graph.inputs, strict=True):
            if item.kind == "tensor":
                node = self._bound(item.index)
                value = self.written.load(node, value.buffer) if item.mutated else value.tensor
                self.values[node] = self.rebound(value, self.spec(node.meta["val"]))
                self._witness(self.values[node])
            elif item.kind == "constant":
                target = constants[item.source]
                for node in self.trace.module.graph.nodes:
                    if node.op == "get_attr" and node.target == target.target:
                        self.values[node] = value.tensor
            elif item.kind == "scalar":
                self.scalars[item.source, item.dtype] = value.tensor
            elif item.kind == "address":
                self.addresses[item.source.partition(".")[2]] = value.tensor
            elif item.kind == "seed":
                self.seeds[item.source] = value.tensor
            elif item.kind == "carrier":
                self._witness(value.tensor)
        for node, tensor in self.trace.embedded.items():
            self.values[node] = _constant(tensor)

    def _bound(self, index: int) -> Node:
        """The node that an argument's input of the model is."""
        node = self.trace.placeholders[index]
        return self.trace.stored.get(node, node)

    def _witness(self, value: TensorValue) -> None:
        known = {d for witness in self.witnesses for d in witness.shape}
        if any(_is_symbol(d) and d not in known for d in value.shape):
            self.witnesses.append(value)

    # Nodes

    def convert_nodes(self, graph: GuardedGraph) -> None:
        nodes = self._nodes()
        cut = self._pieces(nodes)
        if cut is None and isinstance(graph, RepeatingGraph):
            self._convert_once(graph, nodes)
            return
        if cut is None:
            for node in nodes:
                self.convert_node(node)
            return
        # Nothing is computed between the calls: see ``_call``.
        for piece in cut:
            self._call(graph, *piece)

    def _nodes(self) -> list[Node]:
        """What is to be converted, the results of an operator right behind it."""
        nodes = [
            n
            for n in self.trace.module.graph.nodes
            if n.op == "call_function" and not is_skipped(n) and not is_scalar_node(n)
        ]
        place: dict[Node, int] = {}
        for i, node in enumerate(nodes):
            of_another = node.target is operator.getitem
            place[node] = place.get(node.args[0], i) if of_another else i
        return sorted(nodes, key=place.__getitem__)

    def _pieces(self, nodes: list[Node]) -> list[tuple[Region, Instance, int]] | None:
        """The graph as calls of subgraphs, if that is worth it and MAX can say what crosses."""
        if not self.trace.calls or self.trace.signature.data_symbols:
            return None
        if any(n.target in CONTROL_FLOW for n in nodes):
            return None
        regions = find_regions(nodes, self._label, _is_heavy)
        cut = pieces(nodes, regions) if regions else None
        # MAX takes no expressions in signatures.
        for region, instance, _ in cut or []:
            for node in (*instance.inputs, *(instance.nodes[o] for o in region.outputs)):
                shape = self.spec(node.meta["val"]).shape
                if not all(is_static(d) or _is_symbol(d) for d in shape):
                    return None
        return cut

    # Regions

    def _label(self, node: Node) -> str:
        """Equal for nodes that one conversion serves."""
        used = sorted(u.args[1] for u in node.users if u.target is operator.getitem)

        def name(operand: Node) -> str:
            value = operand.meta.get("val")
            return text_of(value, self.symbols, name) if is_scalar_node(operand) else "%"

        parts = (node.args, node.kwargs, node.meta.get("val"), used)
        if node.target in CONTROL_FLOW:
            return node.name  # the text does not say what is inside
        return f"{node.target} {text_of(parts, self.symbols, name)}"

    def _convert_once(self, graph: RepeatingGraph, nodes: list[Node]) -> None:
        """Convert the first of equal regions, and say where in the graph the others are."""
        later: dict[Node, tuple[Repeat, Instance]] = {}
        first: dict[Node, Repeat] = {}
        for region in find_regions(nodes, self._label, _is_heavy):
            repeat = repeat_of(region)
            if repeat is not None and not any(n in self.streams for n in repeat.first.nodes):
                first[repeat.first.nodes[0]] = repeat
                later |= {i.nodes[0]: (repeat, i) for i in region.instances[1:]}
        inside: set[Node] = set()
        for node in nodes:
            if node in inside:
                continue
            if node in first:
                self._first(graph, first[node])
                inside.update(first[node].first.nodes)
            elif node in later:
                repeat, instance = later[node]
                given = [self.values[instance.inputs[i]] for i in repeat.varying]
                results = graph.repeat(repeat, instance, given)
                for offset, result in zip(repeat.outputs, results, strict=True):
                    self.values[instance.nodes[offset]] = result
                inside.update(instance.nodes)
            else:
                self.convert_node(node)

    def _first(self, graph: RepeatingGraph, repeat: Repeat) -> None:
        """Convert the first instance. What the others are given another of is nothing there but
        its type: no lowering may see that it is a constant, or the result of another."""
        given = [repeat.first.inputs[i] for i in repeat.varying]
        outer = {node: self.values[node] for node in given}
        self.values |= zip(given, graph.veiled([outer[n] for n in given]), strict=True)
        for node in repeat.first.nodes:
            self.convert_node(node)
        self.values |= outer
        graph.keep(repeat, [self.values[repeat.first.nodes[o]] for o in repeat.outputs])

    def _call(self, graph: GuardedGraph, region: Region, instance: Instance, number: int) -> None:
        """Call the region's subgraph.

        A graph that calls anything computes nothing itself: MAX's compiled graph takes what went
        into a call for ready after it, so that a kernel there may read what is not yet written
        (26.7). What calls are given, and what they return, is waited for.
        """
        shared = [*self.addresses.values(), *self.scalars.values()]
        if any(n in self.streams for n in instance.nodes):
            shared += [*self.seeds.values(), instance_number(number)]
        given = [*(self.values[n] for n in instance.inputs), *shared, *self.witnesses]
        if region not in self.subgraphs:
            self.subgraphs[region] = self._subgraph(graph, region, [v.type for v in given])
        results = ops.call(self.subgraphs[region], *given)
        for offset, result in zip(region.outputs, results, strict=True):
            self.values[instance.nodes[offset]] = result.tensor

    def _subgraph(self, graph: GuardedGraph, region: Region, types: list[TensorType]) -> Graph:
        """The region as a graph of its own, from its first instance."""
        outer = self.values, self.addresses, self.scalars, self.seeds, self.instance
        first = region.instances[0]
        inner = graph.subgraph(f"{graph.name}_region{len(self.subgraphs)}", types)
        with inner:
            given = [v.tensor for v in inner.inputs]
            self.values = dict(zip(first.inputs, given, strict=False))
            if len(region.instances) == 1:
                # No other instance has other constants, so they stay constants inside.
                embedded = self.trace.embedded
                self.values |= {n: _constant(embedded[n]) for n in first.inputs if n in embedded}
            rest = iter(given[len(first.inputs) :])
            self.addresses = {name: next(rest) for name in outer[1]}
            self.scalars = {name: next(rest) for name in outer[2]}
            if any(n in self.streams for n in first.nodes):
                self.seeds = {name: next(rest) for name in outer[3]}
                self.instance = next(rest)
            for node in first.nodes:
                self.convert_node(node)
            inner.output(*(self.values[first.nodes[o]] for o in region.outputs))
        self.values, self.addresses, self.scalars, self.seeds, self.instance = outer
        return inner

    # Outputs

    def outputs(self) -> list[TensorValue]:
        layouts = self.trace.signature.layouts
        results = [
            _in_memory_order(self.values[node], layout)
            for node, layout in zip(self.trace.results, layouts, strict=True)
        ]
        self.written.store((p, self.values[node]) for p, node in self.trace.stores)
        return results


def _in_memory_order(value: TensorValue, layout: Layout) -> TensorValue:
    # Permuted alone, the result is that of a node of its own.
    if layout.narrowed:
        cut = [slice(0, 1) if i in layout.narrowed else slice(None) for i in range(value.rank)]
        value = value[tuple(cut)]
        if layout.order is not None:
            value = ops.permute(value, list(layout.order))
    return value


def _constant(tensor: torch.Tensor) -> TensorValue:
    data = tensor.detach().cpu().contiguous()
    value = ops.constant(data.numpy(), max_dtype(data.dtype), DeviceRef.CPU())
    # MAX makes one dimension of none.
    return ops.reshape(value, list(data.shape))


def _is_heavy(node: Node) -> bool:
    return node.target in registry and registry[node.target].bank


def _is_symbol(dim: Dim) -> bool:
    return type(dim).__name__ == "SymbolicDim"
