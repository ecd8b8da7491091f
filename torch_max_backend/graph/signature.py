"""The signature of a traced graph: what the compiled model takes and returns, and how torch's
arguments and results map to it.

Computed from the FX graph alone, without MAX, so that a warm start needs no MAX graph.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.errors import UnsupportedError, UnsupportedOperatorError
from torch_max_backend.graph.arguments import scalar_uses, sizes
from torch_max_backend.graph.layout import output_layout
from torch_max_backend.graph.memory_order import (
    layout_of,
    model_result,
    reorder_arguments,
    reorder_results,
)
from torch_max_backend.graph.nested import body, every_node, nested_modules
from torch_max_backend.graph.shapes import Symbols, SymScalar, is_empty
from torch_max_backend.graph.signature_schema import (
    GRADIENTS,
    ModelInput,
    Output,
    Signature,
)
from torch_max_backend.graph.trace import Trace, attribute
from torch_max_backend.graph.views import calls_from, memory_of, same_tensor

# Constants up to this many elements are part of the MAX graph (and of the cache key by value);
# larger ones are inputs, so that no artifact holds a copy of the data.
EMBEDDED_CONSTANT_ELEMENTS = 64
# Operators whose MAX result may be the very memory of their input.
_MAY_ALIAS = frozenset(
    {
        "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "detach", "clone",
        "_to_copy", "lift_fresh", "lift_fresh_copy", "permute", "transpose", "t", "expand", "slice",
        "select", "as_strided", "cat", "contiguous", "constant_pad_nd", "split", "split_with_sizes",
        "repeat", "getitem", "convert_element_type", "copy", "copy_", "index_select", "unbind",
        "squeeze_copy", "unsqueeze_copy", "view_copy", "slice_copy", "expand_copy", "flatten",
        "_reshape_alias", "diagonal", "movedim", "positive", "chunk", "unfold", "flip", "roll",
        "cond", "while_loop",
    }
)  # fmt: skip


def analyse(module: GraphModule, exact: int | None = None) -> Trace:
    """Compute the signature of a functional ATen graph.

    Args:
        module: The graph; permutations are added, what it computes stays the same.
        exact: How many of its results, the first ones, need the very strides that torch promised;
            all if ``None``.

    Raises:
        UnsupportedError: An argument or output that is neither tensor, number nor None.
        UnsupportedOperatorError: A write to something that is not an argument.
    """
    graph = module.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    symbols = Symbols()
    signature = Signature(arguments=len(placeholders))
    signature.pairs, signature.pair_outputs = module.meta.get("pairs", ([], []))
    position = {n: i for i, n in enumerate(placeholders)}

    _bind_symbols(placeholders, symbols, signature)
    symbols.given(signature.symbols)
    mutations = _mutations(module, position)
    views: dict[Node, Output] = {}
    if exact is not None:
        _share_saved(output, exact, mutations)
    if not signature.pairs and exact is not None:
        views = _saved_views(output, exact, mutations, position)
    elif not signature.pairs and module.meta.get(GRADIENTS):
        views = _gradient_views(output, mutations, position, symbols)
    stored = reorder_arguments(module, mutations)
    returned = reorder_results(module, symbols, exact, views)
    stores = _add_arguments(signature, position, mutations, stored)
    embedded = _add_constants(signature, module)

    results: list[Node] = []
    index: dict[Node, int] = {}

    def model_output(node: Node) -> int:
        if node not in index:
            index[node] = len(results)
            results.append(node)
            signature.layouts.append(layout_of(node))
        return index[node]

    for item in output.args[0]:
        made = views.get(item) if isinstance(item, Node) else None
        signature.outputs.append(made or _output(item, position, symbols, signature, model_output))
    written = {node for node, _ in stores}
    for node, value in mutations.items():
        if node not in written:
            result = model_result(returned.get(value, value))
            signature.copy_back.append((position[node], model_output(result)))
    _bind_data_symbols(graph, output, symbols, signature, results, model_output)
    signature.maybe_aliased = _maybe_aliased(results)
    if exact is not None:
        arguments = {n: i for n, i in position.items() if n not in mutations}
        _note_internal(signature, results, exact, arguments)
    _add_shape_inputs(module, symbols, signature)
    return Trace(module, signature, symbols, placeholders, stored, results, stores, embedded)


def _add_arguments(
    signature: Signature,
    position: Mapping[Node, int],
    mutations: Mapping[Node, Node],
    stored: Mapping[Node, Node],
) -> list[tuple[Node, Node]]:
    """Add the arguments that are inputs of the model; returns those that it writes to in place,
    with their new values."""
    stores: list[tuple[Node, Node]] = []
    for node in position:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            if not (value is None or isinstance(value, (int, float, bool, SymScalar))):
                raise UnsupportedError(
                    f"A graph argument of type {type(value).__name__} has no MAX counterpart."
                )
            continue
        in_place = node in mutations and value.is_contiguous() and not is_empty(value)
        if in_place:
            stores.append((node, mutations[node]))
        if in_place or node.users:
            taken = stored.get(node)
            order = None if taken is None else tuple(taken.args[1])
            signature.inputs.append(
                ModelInput("tensor", position[node], mutated=in_place, order=order)
            )
    return stores


def _add_constants(signature: Signature, module: GraphModule) -> dict[Node, torch.Tensor]:
    """Add the tensors of a graph that are inputs of the model; returns those that are not."""
    embedded: dict[Node, torch.Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.users and body(module, node) is None:
            tensor = attribute(module, str(node.target))
            if (
                tensor.numel() <= EMBEDDED_CONSTANT_ELEMENTS
                and tensor.device.type == "cpu"
                and tensor.dtype not in (torch.float16, torch.bfloat16)  # MAX reads them only cast
            ):
                embedded[node] = tensor
            else:
                signature.inputs.append(ModelInput("constant", source=str(node.target)))
    for inner in nested_modules(module):
        for node in inner.graph.nodes:
            if node.op == "get_attr" and body(inner, node) is None:
                embedded[node] = attribute(inner, str(node.target))
    return embedded


def _note_internal(
    signature: Signature, results: Sequence[Node], exact: int, arguments: Mapping[Node, int]
) -> None:
    """Note which results only the backward graph takes, and which of those are memory of arguments
    that are not written to."""
    shown = {o.index for o in signature.outputs[:exact] if o.kind == "value"}
    shown |= {k for _, k in signature.copy_back}
    shown |= {k for k, _ in signature.data_symbols.values()}
    signature.internal = [k for k in range(len(results)) if k not in shown]
    for k in signature.internal:
        root = memory_of(results[k])
        if root in arguments:
            signature.views.append((k, arguments[root]))


def _bind_symbols(placeholders: list[Node], symbols: Symbols, signature: Signature) -> None:
    """Find the argument that holds each symbol; an int argument before a tensor's size."""
    for i, node in enumerate(placeholders):
        value = node.meta.get("val")
        if isinstance(value, SymScalar):
            expr = symbols.canonical(value)
            if expr.is_Symbol:
                signature.symbols.setdefault(expr.name, (i, -1))
    for i, node in enumerate(placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    expr = symbols.canonical(size)
                    if expr.is_Symbol:
                        signature.symbols.setdefault(expr.name, (i, axis))


def _bind_data_symbols(
    graph: torch.fx.Graph,
    output: Node,
    symbols: Symbols,
    signature: Signature,
    results: list[Node],
    model_output: Any,
) -> None:
    """Find the model output that holds each symbol which depends on data and which the runtime has
    to know; add one where none does."""
    needed: set[str] = set()
    for node in graph.nodes:
        if node.target is torch.ops.aten._assert_scalar.default:
            condition = node.args[0]
            value = condition.meta.get("val") if isinstance(condition, Node) else condition
            if isinstance(value, torch.SymBool):
                signature.checks.append((symbols.text(value), str(node.args[1])))
                needed |= symbols.from_data(value)
    for item in output.args[0]:
        value = item.meta.get("val") if isinstance(item, Node) else None
        if isinstance(value, SymScalar):
            needed |= symbols.from_data(value)
    for node, layout in zip(results, signature.layouts, strict=True):
        if layout.sizes or layout.strides:
            value = node.meta["val"]
            for size in (*value.shape, *value.stride()):
                needed |= symbols.from_data(size)
    for name in sorted(needed, key=lambda n: int(n[1:])):
        holders = (n for n in [*results, *graph.nodes] if _dim_of(n, name, symbols) is not None)
        node = next(holders, None)
        if node is None:
            raise UnsupportedOperatorError(
                f"The graph returns a number that depends on data ({name}), which is no size."
            )
        k, dim = model_output(node), _dim_of(node, name, symbols)
        assert dim is not None
        layout = signature.layouts[k]
        permuted = layout.order is not None and bool(layout.narrowed)
        signature.data_symbols[name] = (k, layout.order.index(dim) if permuted else dim)


def _dim_of(node: Node, name: str, symbols: Symbols) -> int | None:
    """The dim of a node's tensor whose size is a symbol."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return None
    texts = [symbols.text(size) for size in value.shape]
    return texts.index(name) if name in texts else None


def _mutations(module: GraphModule, position: dict[Node, int]) -> dict[Node, Node]:
    mutations: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default:
            target, value = node.args[:2]
            if target not in position:
                raise UnsupportedOperatorError(
                    f"The graph writes to {target}, which is not one of its arguments.",
                    operators=[str(node.target)],
                )
            mutations[target] = value
            node.replace_all_uses_with(value)
    return mutations


def _share_saved(output: Node, exact: int, mutations: Mapping[Node, Node]) -> None:
    """Return what only the backward graph takes as the very argument or result that it is a view
    of, where it looks the same: autograd notices writes to either."""
    results = list(output.args[0])
    for i, item in enumerate(results):
        if i >= exact and isinstance(item, Node):
            root = same_tensor(item)
            results[i] = item if root in mutations else root
    output.args = (type(output.args[0])(results),)


def _saved_views(
    output: Node, exact: int, mutations: Mapping[Node, Node], position: Mapping[Node, int]
) -> dict[Node, Output]:
    """What only the backward graph takes that is a view of an argument."""
    shown = set(output.args[0][:exact])
    saved = [item for item in output.args[0][exact:] if item not in shown]
    return _views(saved, mutations, position)


def _gradient_views(
    output: Node,
    mutations: Mapping[Node, Node],
    position: Mapping[Node, int],
    symbols: Symbols,
) -> dict[Node, Output]:
    """Gradients that are a dense part of an argument, as those of ``stack`` are, or that expand it,
    as those of ``sum`` do: eager PyTorch does not copy these either. Of parts that overlap only the
    first is, and none of an argument that is a gradient itself."""
    whole = [n for n in output.args[0] if n in position]
    taken = {position[n]: [range(sys.maxsize)] for n in whole}
    found = {}
    for item, made in _views(output.args[0], mutations, position).items():
        value = item.meta["val"]
        begin = value.storage_offset()
        if not all(isinstance(n, int) for n in (begin, *value.shape)):
            continue  # to compare these would add guards
        layout = output_layout(value, symbols)
        sizes = [n for i, n in enumerate(value.shape) if i not in layout.narrowed]
        memory = range(begin, begin + math.prod(sizes))
        others = taken.setdefault(made.index, [])
        free = all(o.stop <= memory.start or memory.stop <= o.start for o in others)
        if free and not layout.strides:
            others.append(memory)
            found[item] = made
    return found


def _views(
    items: Sequence[Any], mutations: Mapping[Node, Node], position: Mapping[Node, int]
) -> dict[Node, Output]:
    """Those that are views of arguments to which nothing is written."""
    found: dict[Node, Output] = {}
    for item in items:
        root = memory_of(item) if isinstance(item, Node) else item
        if root is item or root not in position or root in mutations:
            continue
        calls = calls_from(item, root)
        if calls is not None:
            found[item] = Output("input", position[root], views=calls)
    return found


def _output(
    item: Any, position: dict[Node, int], symbols: Symbols, signature: Signature, model_output: Any
) -> Output:
    value = item.meta.get("val") if isinstance(item, Node) else item
    if value is None:
        return Output("none")
    if isinstance(value, (int, float, bool, SymScalar)):
        return Output("scalar", source=symbols.text(value))
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"A graph output of type {type(value).__name__} is not supported.")
    if item in position:
        return Output("input", position[item])
    k = model_output(model_result(item))
    return Output("value", k, layout=signature.layouts[k])


def _maybe_aliased(results: list[Node]) -> list[int]:
    """Model outputs reached from an argument, or sharing memory with another, by data movement."""
    roots: dict[Node, list[int]] = {}
    found: set[int] = set()
    for i, node in enumerate(results):
        pending, seen = [node], {node}
        while pending:
            current = pending.pop()
            if current.op in ("placeholder", "get_attr"):
                found.add(i)
                continue
            name = getattr(current.target, "_opname", getattr(current.target, "__name__", ""))
            roots.setdefault(current, []).append(i)
            if name in _MAY_ALIAS:
                fresh = [n for n in current.all_input_nodes if n not in seen]
                seen.update(fresh)
                pending.extend(fresh)
    for sharing in roots.values():
        if len(sharing) > 1:
            found.update(sharing)
    return sorted(found)


def _add_shape_inputs(module: GraphModule, symbols: Symbols, signature: Signature) -> None:
    """Inputs for the symbols and expressions that no tensor's own shape binds, and for symbolic
    numbers that are used as data."""
    nodes, graph = list(every_node(module)), module.graph
    used: set[str] = set()
    for size in sizes(nodes):
        symbols.dim(size)
        used.update(s.name for s in symbols.canonical(size).free_symbols)
    used = {name for name in used if name not in symbols.unbacked}
    bound = {name for name in used if _bound_by_model_input(name, graph, symbols, signature)}
    for name in sorted(used - bound, key=lambda n: int(n[1:])):
        signature.inputs.append(ModelInput("carrier", source=name))
    for text in symbols.carried:
        signature.inputs.append(ModelInput("carrier", source=text))
    for text, dtype in scalar_uses(nodes, symbols):
        signature.inputs.append(ModelInput("scalar", source=text, dtype=dtype))


def _bound_by_model_input(
    name: str, graph: torch.fx.Graph, symbols: Symbols, signature: Signature
) -> bool:
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for model_input in signature.inputs:
        if model_input.kind == "tensor":
            for size in placeholders[model_input.index].meta["val"].shape:
                if isinstance(size, torch.SymInt) and symbols.text(size) == name:
                    return True
    return False
