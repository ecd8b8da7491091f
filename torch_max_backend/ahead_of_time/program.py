"""From what ``torch.export`` made to the functional graph that the backend compiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from torch_max_backend.ahead_of_time.manifest import Input, Result, Symbol
from torch_max_backend.compat.operators import DispatchKey, has_kernel
from torch_max_backend.compat.symbols import int_oo
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.errors import PackageError, UnsupportedError
from torch_max_backend.graph.shapes import Symbols, SymScalar, expression

aten = torch.ops.aten

_STATE = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_MUTATIONS = frozenset(
    {
        OutputKind.BUFFER_MUTATION,
        OutputKind.PARAMETER_MUTATION,
        OutputKind.USER_INPUT_MUTATION,
    }
)
_SYMBOL = re.compile(r"\b[a-z][0-9]+\b")


@dataclass
class Program:
    """A program as the backend compiles it.

    Attributes:
        module: A functional graph, which ends with the writes to its arguments. These are the
            state, the inputs that are no constants, and the symbols that no size is.
        state: Name, kind and value of each tensor that the program keeps.
        inputs: Each leaf of the arguments of a call, and the node that stands for it.
        results: The leaves of what a call returns.
        names: The parameters of a call.
        lone: Symbols that only expressions of sizes hold, and are arguments of their own.
        ranges: By symbol, what torch lets it be.
        trees: The structures of the arguments and of what is returned.
    """

    module: GraphModule
    state: list[tuple[str, str, torch.Tensor]]
    inputs: list[tuple[Input, Any]]
    results: list[Result]
    names: tuple[str, ...]
    lone: list[sympy.Symbol]
    ranges: Mapping[sympy.Symbol, Any]
    trees: tuple[pytree.TreeSpec, pytree.TreeSpec]


def program(exported: ExportedProgram) -> Program:
    """Decompose a program as the backend does, and give it the form of AOTAutograd's graphs.

    Raises:
        UnsupportedError: It computes gradients, or takes what is neither tensor nor number.
    """
    from torch_max_backend.graph.dispatch_override import whole

    with torch.no_grad(), whole():
        exported = exported.run_decompositions(_table())
    signature, graph = exported.graph_signature, exported.graph_module.graph
    nodes = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    values = {**exported.constants, **exported.state_dict}
    state: list[tuple[str, str, torch.Tensor]] = []
    inputs: list[tuple[Input, Any]] = []
    targets: dict[str, Node] = {}
    labels = _labels(exported)
    first = next(n for n in graph.nodes if n.op != "placeholder")
    kept: list[Node] = []
    taken: list[Node] = []
    tokens: list[Node] = []
    for spec in signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind in _STATE:
            temporary = spec.kind is InputKind.BUFFER and not spec.persistent
            kind = "temporary" if temporary else _STATE[spec.kind]
            state.append((str(spec.target), kind, values[str(spec.target)]))
            targets[str(spec.target)] = node
            kept.append(node)
        elif spec.kind is InputKind.TOKEN:
            tokens.append(node)
        elif spec.kind is InputKind.USER_INPUT:
            label = labels[len(inputs)]
            if isinstance(spec.arg, ConstantArgument):
                inputs.append((_constant(label, spec.arg.value), None))
                node.replace_all_uses_with(spec.arg.value)
                graph.erase_node(node)
            else:
                inputs.append((_input(label, node), node))
                taken.append(node)
        else:
            raise UnsupportedError(f"The program takes {spec.arg}, which is no tensor or number.")
    for node in (*kept, *taken):
        first.prepend(node)
    results = _outputs(exported, graph, {**targets, **nodes})
    lone = _lone_symbols(graph, inputs, first)
    _make_tokens(graph, tokens, first)
    for node in list(graph.nodes):
        if node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)  # what a loaded package checks for each call
    graph.lint()
    module = GraphModule(exported.graph_module, graph)
    return Program(
        module,
        state,
        inputs,
        results,
        tuple(exported.module_call_graph[0].signature.forward_arg_names or ()),
        lone,
        {s: r for s, r in exported.range_constraints.items() if s.is_Symbol},
        (exported.call_spec.in_spec, exported.call_spec.out_spec),
    )


def _make_tokens(graph: Graph, tokens: Sequence[Node], first: Node) -> None:
    """Make the tokens that a program takes, as AOTAutograd's graphs do."""
    for node in tokens:
        with graph.inserting_before(first):
            token = graph.call_function(torch.ops.prims._make_token.default)
        token.meta = dict(node.meta)
        node.replace_all_uses_with(token)
        graph.erase_node(node)


def _table() -> dict[Any, Callable[..., Any]]:
    """The backend's decompositions, and for operators that AOTAutograd always takes apart those
    that it uses."""
    from torch_max_backend.graph.decompositions.table import decomposition_table
    from torch_max_backend.graph.dispatch_override import kernels

    composite = DispatchKey.CompositeImplicitAutograd
    found = {
        op: decompose
        for op, decompose in default_decompositions().items()
        if has_kernel(op, composite)
    }
    return {**found, **decomposition_table(), **kernels()}


def _labels(exported: ExportedProgram) -> list[str]:
    """What messages call the leaves of the arguments."""
    spec = exported.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    names = exported.module_call_graph[0].signature.forward_arg_names or ()
    found = []
    for i, value in enumerate(args):
        name = names[i] if i < len(names) else f"args[{i}]"
        found += [name + pytree.keystr(path) for path, _ in _leaves(value)]
    for name, value in kwargs.items():
        found += [name + pytree.keystr(path) for path, _ in _leaves(value)]
    return found


def _leaves(value: Any) -> list[tuple[Any, Any]]:
    return pytree.tree_flatten_with_path(value)[0]


def _constant(label: str, value: Any) -> Input:
    if value is not None and type(value) not in (int, float, bool, str):
        raise UnsupportedError(
            f"The program was exported for {label}={value!r}: a {type(value).__name__} cannot be "
            "kept in a package."
        )
    return Input(label, "constant", value=value)


def _input(label: str, node: Node) -> Input:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return Input(label, "tensor", dtype, str(value.device))
    if isinstance(value, torch.SymInt):
        return Input(label, "int")
    raise UnsupportedError(f"The program takes {label}, a {type(value).__name__}.")


def _outputs(
    exported: ExportedProgram, graph: torch.fx.Graph, targets: Mapping[str, Node]
) -> list[Result]:
    """Let the graph end with the writes to its arguments and return only what it computes."""
    output = graph.output_node()
    results: list[Result] = []
    returned: list[Any] = []
    with graph.inserting_before(output):
        specs = exported.graph_signature.output_specs
        for spec, value in zip(specs, output.args[0], strict=True):
            if spec.kind in _MUTATIONS:
                node = targets[str(spec.target)]
                copy = graph.call_function(aten.copy_.default, (node, value))
                copy.meta = {**node.meta, "val": node.meta["val"]}
            elif spec.kind is OutputKind.USER_OUTPUT:
                if isinstance(value, Node):
                    results.append(Result(len(returned)))
                    returned.append(value)
                else:
                    results.append(Result(-1, _constant("a result", value).value))
            elif spec.kind is not OutputKind.TOKEN:
                raise UnsupportedError(
                    f"The program returns {spec.kind.name.lower()}: only inference is packaged."
                )
    output.args = (tuple(returned),)
    return results


def _lone_symbols(
    graph: torch.fx.Graph, inputs: list[tuple[Input, Any]], first: Node
) -> list[sympy.Symbol]:
    """Give the graph an argument for each symbol that is no size of its own."""
    sizes = [s for _, node in inputs if node is not None for s in _sizes(node.meta["val"])]
    symbolic = {expression(s): s for s in sizes if isinstance(s, SymScalar)}
    bare = {e for e in symbolic if e.is_Symbol}
    free = {s for e in symbolic for s in e.free_symbols}
    found = sorted(free - bare, key=str)
    for symbol in found:
        node = next(s for e, s in symbolic.items() if symbol in e.free_symbols).node
        with graph.inserting_before(first):
            placeholder = graph.placeholder(f"size_{symbol}")
        placeholder.meta["val"] = node.shape_env.create_symintnode(symbol, hint=None)
    return found


def _sizes(value: Any) -> tuple[Any, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)


def call(
    found: Program, symbols: Symbols
) -> tuple[tuple[Input, ...], dict[str, Symbol], tuple[tuple[str, str], ...]]:
    """How a call's arguments are checked, and the symbols found in them.

    Args:
        found: The program.
        symbols: The names of the symbols of its graph.

    Returns:
        The inputs, the symbols by name, and the conditions on them.

    Raises:
        PackageError: A symbol cannot be told from a size that it is part of.
    """
    inputs = []
    sources: dict[sympy.Symbol, tuple[int, int]] = {}
    parts: dict[sympy.Symbol, tuple[int, int, sympy.Expr]] = {}
    env = None
    for i, (given, node) in enumerate(found.inputs):
        if node is None:
            inputs.append(given)
            continue
        value = node.meta["val"]
        texts: list[int | str] = []
        for dim, size in enumerate(_sizes(value)):
            place = (i, dim if given.kind == "tensor" else -1)
            if isinstance(size, SymScalar):
                env, expr = size.node.shape_env, expression(size)
                if expr.is_Symbol:
                    sources.setdefault(expr, place)
                elif len(expr.free_symbols) == 1:
                    parts.setdefault(next(iter(expr.free_symbols)), (*place, expr))
            texts.append(symbols.text(size) if isinstance(size, SymScalar) else int(size))
        inputs.append(replace(given, sizes=tuple(texts)))
    made: dict[str, Symbol] = {}
    for symbol in dict.fromkeys([*sources, *found.lone]):
        name = str(symbols.canonical(symbol))
        least, most = _range(symbol, found.ranges, env)
        if symbol in sources:
            made[name] = Symbol(least, most, sources[symbol])
            continue
        i, dim, expr = parts.get(symbol, (0, 0, sympy.S.Zero))
        factor, offset = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
        if not factor.is_Integer or not offset.is_Integer or expr != factor * symbol + offset:
            raise PackageError(
                f"The size {symbol} is part of {expr}, from which it cannot be told.",
                "Export with dynamic_shapes in which it is the size of a dim.",
            )
        made[name] = Symbol(least, most, (i, dim), int(factor), int(offset), argument=True)
    return tuple(inputs), made, _conditions(env, symbols, made, inputs)


def _range(symbol: sympy.Symbol, ranges: Mapping[sympy.Symbol, Any], env: Any) -> tuple[Any, Any]:
    """What a symbol may be, as far as torch knows."""
    known = ranges.get(symbol, env.var_to_range.get(symbol))
    most = known.upper
    return int(known.lower), None if most in (int_oo, sympy.oo) else int(most)


def _conditions(
    env: Any, symbols: Symbols, made: Mapping[str, Symbol], inputs: list[Input]
) -> tuple[tuple[str, str], ...]:
    """What the trace took for true of the sizes, beyond their ranges."""
    if env is None:
        return ()
    found: dict[str, str] = {}
    for guard in env.guards:
        expr = env.replace(guard.expr)
        if expr in (sympy.true, sympy.false) or not expr.free_symbols:
            continue
        text = symbols.text(expr)
        if made.keys() >= set(_SYMBOL.findall(text)):
            found[text] = _SYMBOL.sub(lambda m: _said(made[m[0]], inputs), text)
    return tuple(found.items())


def _said(symbol: Symbol, inputs: list[Input]) -> str:
    """A symbol in words of the user's."""
    i, dim = symbol.source
    text = inputs[i].name if dim < 0 else f"{inputs[i].name}.shape[{dim}]"
    if symbol.offset:
        text = f"({text} - {symbol.offset})"
    return text if symbol.factor == 1 else f"({text} / {symbol.factor})"
