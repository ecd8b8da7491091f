"""Before anything is converted: everything in a graph that cannot be, in one exception."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torch_max_backend.compat.operators import HigherOrderOperator, OpOverload
from torch_max_backend.compat.symbols import ToFloat
from torch_max_backend.errors import (
    MaxBackendError,
    UnsupportedDeviceError,
    UnsupportedDtypeError,
    UnsupportedError,
    UnsupportedOperatorError,
)
from torch_max_backend.graph.describe import describe_call, describe_value, where
from torch_max_backend.graph.memory_order import RUNTIME
from torch_max_backend.graph.nested import CONTROL_FLOW, every_node
from torch_max_backend.graph.random_seeds import is_random
from torch_max_backend.graph.shapes import expression, is_scalar_node
from torch_max_backend.log import several
from torch_max_backend.max_devices import device_ref
from torch_max_backend.max_dtypes import max_dtype
from torch_max_backend.registry.lowerings import Refusal, bind, registry

_SKIPPED = frozenset(
    {
        torch.ops.aten.copy_.default,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    }
)
_CONTROL_FLOW = "cond, while_loop, map and scan are converted"

_MISSING = {
    "aten::_local_scalar_dense": "a Python number that depends on the data; keep .item() and the "
    "like out of the compiled region",
    "aten::resize_": "it changes the memory of its argument, which a functional graph cannot",
}


def is_collective(op: object) -> bool:
    """Whether an operator communicates: one of ``torch.distributed``'s functional collectives, or
    the wait for one."""
    return isinstance(op, OpOverload) and op.namespace in ("_c10d_functional", "_dtensor")


def missing(op: OpOverload) -> Refusal:
    """Why an overload has no lowering."""
    if is_collective(op):
        return Refusal(
            "a collective, which torch.distributed runs between the parts that are compiled; "
            "fallback='error' does not go with it"
        )
    if op.namespace not in ("aten", "prims"):
        return Refusal(
            "an operator from outside PyTorch, whose code MAX cannot see; give it a lowering with "
            "torch_max_backend.map_to, or a Mojo kernel with torch_max_backend.mojo_op"
        )
    return Refusal(_MISSING.get(op._schema.name, "no lowering is registered"))


def is_skipped(node: Node) -> bool:
    """Nodes that the signature handles: writes to mutated arguments, conditions on sizes, views of
    arguments and results."""
    return node.target in _SKIPPED or RUNTIME in node.meta


def refusal(node: Node) -> Refusal | None:
    """Why a node cannot be converted, or ``None``."""
    target = node.target
    if node.op != "call_function":
        return Refusal(f"{node.op} nodes are not converted") if node.op == "call_module" else None
    if target is torch.ops.aten._local_scalar_dense.default:
        return missing(target)
    if is_skipped(node) or is_scalar_node(node) or target is operator.getitem:
        return None
    if isinstance(target, HigherOrderOperator):
        return control_flow_refusal(node)
    if not isinstance(target, OpOverload):
        if getattr(target, "__module__", None) in ("math", "_operator"):
            return (
                None if target in vars(math).values() else Refusal("a Python operator on tensors")
            )
        return Refusal("not an ATen operator")
    if target not in registry:
        return missing(target)
    values = [n.meta.get("val") for n in node.all_input_nodes]
    made = not registry[target].sizes_from_data and free_unbacked_symbols(node.meta.get("val"))
    if made and made - set().union(*(free_unbacked_symbols(v) for v in values if v is not None)):
        return Refusal("the size of its result depends on the data")
    for value in values:
        if _is_computed_from_data(value):
            return Refusal("a number that depends on data, and is no size, is not converted")
    return registry[target].refusal(fake_arguments(node))


def fake_arguments(node: Node) -> dict[str, Any]:
    """A node's arguments by the schema's names, tensors as fake tensors."""
    return {
        name: torch.fx.node.map_arg(value, lambda n: n.meta.get("val"))
        for name, value in bind(node.target, node.args, node.kwargs).items()
    }


def _is_computed_from_data(value: Any) -> bool:
    """Whether a number is neither known before a run nor a size of a tensor."""
    if not isinstance(value, (torch.SymFloat, torch.SymBool)) or not free_unbacked_symbols(value):
        return False
    return not isinstance(expression(value), ToFloat)


def control_flow_refusal(node: Node) -> Refusal | None:
    """Why a higher-order operator cannot be converted, or ``None``."""
    if "triton" in str(node.target):
        return Refusal(
            "a Triton kernel, which MAX cannot run; keep the call out of the compiled region with "
            "torch.compiler.disable, or write it in Mojo (torch_max_backend.mojo_op)"
        )
    if node.target not in CONTROL_FLOW:
        return Refusal(f"this higher-order operator is not converted ({_CONTROL_FLOW})")
    results = node.meta["val"]
    if not all(isinstance(v, torch.Tensor) for v in results):
        return Refusal("a result of the branches or of the loop is no tensor")
    if free_unbacked_symbols(results):
        return Refusal("the size of its result depends on the data")
    return None


def check_supported(module: GraphModule) -> None:
    """Raise one exception that names everything in the graph that cannot be converted.

    Raises:
        UnsupportedDtypeError: A complex, sparse, quantized, ... tensor.
        UnsupportedDeviceError: A tensor on a device that MAX does not drive.
        UnsupportedOperatorError: Operators without lowering, or refused.
    """
    _check_tensors(module)
    problems: dict[str, list[tuple[Node, Refusal]]] = {}
    for node in every_node(module):
        found = refusal(node)
        if found is None and node.graph is not module.graph:
            found = _refusal_inside(node)
        if found is not None:
            problems.setdefault(str(node.target), []).append((node, found))
    if problems:
        raise unsupported(problems)


def _refusal_inside(node: Node) -> Refusal | None:
    """Why a node cannot be converted in a branch or loop, though it could elsewhere."""
    if is_random(node):
        return Refusal("random numbers inside cond or while_loop are not converted")
    if node.target is torch.ops.aten._assert_scalar.default:
        return Refusal("a size that data decides, inside cond or while_loop, is not converted")
    return None


def unsupported(problems: dict[str, list[tuple[Node, Refusal]]]) -> UnsupportedOperatorError:
    """The exception that names nodes, by operator, and why they are refused."""
    error = UnsupportedOperatorError(*_report(problems), operators=list(problems))
    error.refused = tuple((n, r.reason) for found in problems.values() for n, r in found)
    return error


def _check_tensors(module: GraphModule) -> None:
    """Raise for the first tensor that MAX has no counterpart of, and tell who has such tensors."""
    first: MaxBackendError | None = None
    refused: dict[Node, str] = {}
    for node in every_node(module):
        for tensor in _tensors(node.meta.get("val")):
            try:
                _check_tensor(tensor)
            except (UnsupportedDtypeError, UnsupportedDeviceError) as e:
                # An argument has no line of its own; the first operator that takes it has.
                takers = [u for u in node.users if u.op == "call_function"]
                own = node.op not in ("placeholder", "get_attr")
                place = node if own or not takers else takers[0]
                refused.update(dict.fromkeys([node, *takers] if own else takers, str(e)))
                first = first or type(e)(str(e), f"  in {_describe(place)}", where(place))
    if first is not None:
        first.refused = tuple(refused.items())
        raise first


def _check_tensor(tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided:
        raise UnsupportedDtypeError(
            f"MAX has no counterpart of a tensor of layout {tensor.layout}.",
            "Convert it with .to_dense() before the compiled region.",
        )
    if tensor.is_quantized:
        raise UnsupportedDtypeError(
            f"MAX has no counterpart of a quantized tensor ({tensor.dtype}).",
            "Convert it with .dequantize() before the compiled region.",
        )
    max_dtype(tensor.dtype)
    device_ref(tensor.device)


def _report(problems: dict[str, list[tuple[Node, Refusal]]]) -> Iterator[str]:
    count = len(problems)
    yield f"The max backend cannot convert {several(count, 'operator')} of this graph:"
    for nodes in problems.values():
        node, found = nodes[0]
        times = f" ({len(nodes)} times)" if len(nodes) > 1 else ""
        yield f"- {describe_call(node)}{times}: {found.reason}"
        yield where(node)
    yield (
        "Add a lowering with torch_max_backend.map_to, rewrite the lines above, or keep them out "
        "of the compiled region with torch.compiler.disable."
    )


def _describe(node: Node) -> str:
    if node.op == "call_function":
        return describe_call(node)
    return f"{node.op} {node.name}: {describe_value(node.meta.get('val'))}"


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return []


__all__ = ["UnsupportedError", "check_supported", "fake_arguments", "is_skipped", "refusal"]
