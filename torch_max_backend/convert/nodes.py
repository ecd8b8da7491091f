"""One node of a traced ATen graph as operations of MAX, through the registry."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorValue, ops
from torch import SymFloat, SymInt
from torch.fx import GraphModule, Node

from torch_max_backend.compat.operators import TENSOR, OpOverload
from torch_max_backend.convert.context import (
    NodeContext,
    RandomStream,
    TensorSpec,
    at,
    converting,
)
from torch_max_backend.convert.control_flow import converted
from torch_max_backend.errors import ConversionError, MaxBackendError
from torch_max_backend.graph.arguments import scalar_dtype, wants_size
from torch_max_backend.graph.describe import describe_call, where
from torch_max_backend.graph.nested import CONTROL_FLOW, body
from torch_max_backend.graph.random_seeds import drawing_device, is_random
from torch_max_backend.graph.shapes import SymScalar, expression, is_scalar_node
from torch_max_backend.graph.trace import Trace
from torch_max_backend.max_devices import device_ref
from torch_max_backend.max_dtypes import SIXTEEN_BIT_FLOATS, max_dtype
from torch_max_backend.registry.lowerings import Lowering, argument_name, bind, registry
from torch_max_backend.registry.type_checks import VIOLATIONS


class NodeConverter:
    """Converts nodes into the MAX graph that is being built.

    Attributes:
        values: What nodes have become: a value of MAX, several, or ``None``.
        scalars: Numbers that are arguments, by the text of their size and dtype.
        addresses: Those of routines of matrix products.
        seeds: Of random numbers, by device.
        instance: Which of several equal regions runs.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.symbols = trace.symbols
        self.values: dict[Node, Any] = {}
        self.scalars: dict[tuple[str, str], TensorValue] = {}
        self.addresses: dict[str, TensorValue] = {}
        self.seeds: dict[str, TensorValue] = {}
        self.instance: TensorValue | None = None
        drawing = (n for n in trace.module.graph.nodes if is_random(n))
        self.streams = {node: i for i, node in enumerate(drawing)}
        self.modules: dict[Any, GraphModule] = {}

    def spec(self, value: torch.Tensor) -> TensorSpec:
        """What a tensor of torch's metadata is for MAX."""
        return TensorSpec(
            max_dtype(value.dtype),
            tuple(self.symbols.dim(s) for s in value.shape),
            device_ref(value.device),
        )

    def convert_node(self, node: Node) -> None:
        """Build what a node is.

        Raises:
            ConversionError: Its lowering failed, or built other than torch's metadata says.
            UnsupportedError: A dtype or device has no conversion.
        """
        if node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.values[source][index]
            return
        try:
            branches = node.target in CONTROL_FLOW
            with at(node):
                self.values[node] = self._controlled(node) if branches else self._convert(node)
        except MaxBackendError as e:
            if isinstance(e, ConversionError) and "  at " in str(e):
                raise
            located = type(e)(str(e), f"  in {describe_call(node)}", where(node))
            located.refused = ((node, str(e)),)
            raise located from e
        except Exception as e:
            failed = ConversionError(
                f"The lowering of {node.target} failed: {e}",
                f"  in {describe_call(node)}",
                where(node),
                "  The type hints of the lowering refused a value; fix the hint or the caller."
                if isinstance(e, VIOLATIONS)
                else None,
            )
            failed.refused = ((node, f"its lowering failed: {e}"),)
            raise failed from e

    def _controlled(self, node: Node) -> list[TensorValue]:
        module = self.modules.get(node.graph, self.trace.module)

        def value_of(argument: Any) -> Any:
            if isinstance(argument, (list, tuple)):
                return [value_of(a) for a in argument]
            inner = body(module, argument) if _is_attribute(argument) else None
            if inner is not None:
                return inner
            # A number is no argument of a schema that would say what it is for: its users do.
            return argument if _is_number(argument) else self._argument(TENSOR, argument)

        specs = [self.spec(v) for v in node.meta["val"]]
        return converted(node, value_of, specs, self._body)

    def _body(self, module: GraphModule, operands: Sequence[Any]) -> list[TensorValue]:
        """The results of a graph inside this one, its nodes converted where MAX builds now."""
        self.modules[module.graph] = module
        given = iter(operands)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "call_function" and not is_scalar_node(node):
                self.convert_node(node)
        output = next(n for n in reversed(module.graph.nodes) if n.op == "output")
        results = output.args[0]
        return [self.values[n] for n in ([results] if isinstance(results, Node) else results)]

    def _convert(self, node: Node) -> Any:
        lowering = registry[node.target]
        context = self._context(node)
        arguments = {
            name: self._argument(kind, value)
            for name, (kind, value) in _typed_arguments(node).items()
        }
        if not lowering.native16:
            arguments = {k: _widened(v) for k, v in arguments.items()}
        with converting(context):
            result = lowering.call(arguments)
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        if len(results) != len(context.outputs):
            raise ConversionError(
                f"The lowering of {node.target} returned {len(results)} values; the operator "
                f"returns {len(context.outputs)}."
            )
        checked = [
            self._check(lowering, value, spec, used)
            for value, spec, used in zip(results, context.outputs, context.used, strict=True)
        ]
        return checked if isinstance(node.meta.get("val"), (list, tuple)) else checked[0]

    def _context(self, node: Node) -> NodeContext:
        val = node.meta.get("val")
        several = isinstance(val, (list, tuple))
        specs = tuple(
            self.spec(v) if isinstance(v, torch.Tensor) else None
            for v in (val if several else [val])
        )
        taken = {u.args[1] for u in node.users if u.target is operator.getitem}
        used = tuple(i in taken if several else True for i in range(len(specs)))
        signature = self.trace.signature
        return NodeContext(
            node,
            specs,
            used,
            bool(signature.bank),
            self.addresses,
            self._stream(node),
            signature.precision,
            signature.bfloat16,
        )

    def _stream(self, node: Node) -> RandomStream | None:
        if node not in self.streams:
            return None
        instance = instance_number(0) if self.instance is None else self.instance
        return RandomStream(self.seeds[drawing_device(node)], self.streams[node], instance)

    def _argument(self, kind: Any, value: Any) -> Any:
        if isinstance(value, Node):
            number = value.meta.get("val")
            if isinstance(number, SymScalar):
                if wants_size(kind):
                    return self.symbols.dim(number)
                if self.symbols.from_data(number):
                    return self._size_as_data(number)
                return self.scalars[self.symbols.text(number), scalar_dtype(number)]
            if isinstance(number, (int, float, bool)):
                return number
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self._argument(kind, v) for v in value]
        if isinstance(value, torch.dtype):
            return max_dtype(value)
        if isinstance(value, torch.device):
            return device_ref(value)
        return value

    def _size_as_data(self, number: SymScalar) -> TensorValue:
        """A size that depends on data as a 0-d tensor."""
        of_float = isinstance(number, torch.SymFloat)
        size = self.symbols.dim(expression(number).args[0] if of_float else number)
        value = ops.reshape(ops.shape_to_tensor([size]), [])
        return ops.cast(value, DType.float64) if of_float else value

    def _check(
        self, lowering: Lowering, value: Any, spec: TensorSpec | None, used: bool
    ) -> TensorValue | None:
        if spec is None or value is None:
            if spec is not None and used:
                raise ConversionError(f"The lowering of {lowering.name} left out a used output.")
            return None
        rounds = spec.dtype in SIXTEEN_BIT_FLOATS and not lowering.native16
        if rounds and value.dtype == DType.float32:
            value = ops.cast(value, spec.dtype)
        agrees = (
            value.dtype == spec.dtype
            and len(value.shape) == spec.rank
            and all(
                int(a) == b
                for a, b in zip(value.shape, spec.shape, strict=True)
                if isinstance(b, int) and is_static(a)
            )
        )
        if not agrees:
            raise ConversionError(
                f"The lowering of {lowering.name} built {value.dtype.name}"
                f"{[str(d) for d in value.shape]}; torch says {spec.dtype.name}"
                f"{[str(d) for d in spec.shape]}."
            )
        return self.rebound(value, spec)

    def rebound(self, value: TensorValue, spec: TensorSpec) -> TensorValue:
        """A value with the names of sizes that torch's metadata has."""
        same = all(a == b for a, b in zip(value.shape, spec.shape, strict=True))
        return value if same else ops.rebind(value, spec.shape)


def _typed_arguments(node: Node) -> dict[str, tuple[Any, Any]]:
    assert isinstance(node.target, OpOverload)
    kinds = {argument_name(a.name): a.real_type for a in node.target._schema.arguments}
    bound = bind(node.target, node.args, node.kwargs)
    return {name: (kinds[name], value) for name, value in bound.items()}


def _widened(value: Any) -> Any:
    if isinstance(value, list):
        return [_widened(v) for v in value]
    narrow = isinstance(value, TensorValue) and value.dtype in SIXTEEN_BIT_FLOATS
    return ops.cast(value, DType.float32) if narrow and value.device.is_cpu() else value


def instance_number(number: int) -> TensorValue:
    """A number of an equal region as a 0-d tensor: int64."""
    return ops.constant(number, DType.int64, DeviceRef.CPU())


def _is_attribute(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "get_attr"


def _is_number(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), (SymInt, SymFloat))


def is_static(dim: Any) -> bool:
    """Whether a dim's size is a number."""
    return isinstance(dim, int) or type(dim).__name__ == "StaticDim"
