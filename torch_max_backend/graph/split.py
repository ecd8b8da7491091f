"""A graph cut into parts that MAX takes and nodes that stay with torch.

Nodes get a level: odd ones are torch's, even ones MAX's, and no node is below its inputs. So all of
one even level is one part, no part waits for itself, and what could be one part is.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from torch_max_backend.graph.shapes import SymScalar, expression, is_scalar_node

aten = torch.ops.aten

_WRITE = aten.copy_.default

# Views, and what unpacks results: they are no work.
_FREE = frozenset(
    {
        "alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice",
        "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze",
        "view", "_unsafe_view", "reshape",
    }
)  # fmt: skip

# Conditions on sizes: torch checks them between the parts.
_CHECKS = frozenset(
    {
        aten._assert_scalar.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)


@dataclass(eq=False)
class Part:
    """Nodes that become one MAX graph.

    Attributes:
        module: The part as a graph of its own.
        nodes: Names of its nodes in the whole graph, in order, numbers left out.
        inputs: Names of the nodes of the whole graph that it takes, in order.
    """

    module: GraphModule
    nodes: list[str]
    inputs: list[str]


@dataclass(eq=False)
class Split:
    """A graph of parts.

    Attributes:
        whole: Calls everything. Its submodules ``part0``, ``part1``, ... are to be set; they take
            the inputs of a part and return its results.
        parts: In the order in which they run.
        eager: Names of the nodes that torch runs, in order.
        merged: Those of them that MAX would have taken.
    """

    whole: GraphModule
    parts: list[Part]
    eager: list[str]
    merged: list[str]


def work(module: GraphModule) -> int:
    """How many nodes of a graph compute something."""
    return sum(map(is_work, module.graph.nodes))


def is_work(node: Node) -> bool:
    """Whether a node computes something: it is no view, no size, no result of several."""
    if node.op != "call_function" or is_scalar_node(node) or node.target is operator.getitem:
        return False
    if node.target in _CHECKS or node.target is _WRITE:
        return False
    return getattr(node.target, "_opname", "") not in _FREE


def split(module: GraphModule, refused: Collection[str], least: int) -> Split:
    """Cut a functional ATen graph.

    Args:
        module: The graph. What uses the result of a write to an argument will use the value that
            was written; otherwise it is not changed.
        refused: Names of nodes that MAX cannot take.
        least: Parts with less work than this many nodes stay with torch.
    """
    for node in module.graph.nodes:
        if node.target is _WRITE:
            node.replace_all_uses_with(node.args[1])
    levels = _Levels(module, refused)
    merged: set[Node] = set()
    while small := levels.smallest(least):
        merged |= small
        levels.eager |= small
        levels.assign()
    return _Writer(module, levels).split(merged)


class _Levels:
    """A level for each node.

    Attributes:
        of: The level of each node that calls a function, but for writes to arguments. Numbers, and
            what unpacks results, have the level of what they are made of.
        eager: The nodes that torch runs.
    """

    def __init__(self, module: GraphModule, refused: Collection[str]) -> None:
        self.nodes = [
            n for n in module.graph.nodes if n.op == "call_function" and n.target is not _WRITE
        ]
        self.eager = {n for n in self.nodes if n.name in refused or n.target in _CHECKS}
        self.assign()

    def assign(self) -> None:
        """Give each node the lowest level that its inputs allow."""
        self.of: dict[Node, int] = {}
        for node in self.nodes:
            level = max((self.of.get(n, -1) for n in node.all_input_nodes), default=-1)
            if node in self.eager:
                level += 1 - level % 2
            elif node.target is not operator.getitem and not is_scalar_node(node):
                level += level % 2
            self.of[node] = level

    def parts(self) -> dict[int, list[Node]]:
        """The nodes of each part, by level, with the numbers that it computes."""
        found: dict[int, list[Node]] = {}
        for node in self.nodes:
            if self.of[node] % 2 == 0:
                found.setdefault(self.of[node], []).append(node)
        return found

    def smallest(self, least: int) -> set[Node]:
        """The nodes of the part with the least work, if that is less than ``least``."""
        counts = {level: sum(map(is_work, nodes)) for level, nodes in self.parts().items()}
        level = min(counts, key=lambda k: (counts[k], k), default=0)
        if counts.get(level, least) >= least:
            return set()
        return {n for n in self.parts()[level] if not is_scalar_node(n)}


class _Writer:
    def __init__(self, module: GraphModule, levels: _Levels) -> None:
        self.module = module
        self.levels = levels
        self.parts = levels.parts()
        self.order = {n: i for i, n in enumerate(module.graph.nodes)}
        self.writes = [n for n in module.graph.nodes if n.target is _WRITE]
        self.inside = {n: self._place(n) for n in self.writes}

    def _place(self, write: Node) -> int | None:
        """The part that can write to an argument in place: it computes the value, and nobody looks
        at the argument later. What torch runs may be a view of it."""
        target, value = write.args[:2]
        level = self.levels.of.get(value, -1)
        if level not in self.parts or value in self.levels.eager or target.op != "placeholder":
            return None
        readers = [self.levels.of.get(n, level + 1) for n in target.users if n is not write]
        return level if all(k % 2 == 0 and k <= level for k in readers) else None

    def split(self, merged: Collection[Node]) -> Split:
        """The whole graph, and its parts."""
        graph = Graph()
        parts: list[Any] = []
        values = {
            n: graph.node_copy(n)
            for n in self.module.graph.nodes
            if n.op in ("placeholder", "get_attr")
        }
        by_level: dict[int, list[Node]] = {}
        for node in self.levels.nodes:
            by_level.setdefault(self.levels.of[node], []).append(node)
        for level in sorted(by_level):
            own = by_level[level]
            if level in self.parts:
                wanted = self._wanted(level)
                part, inputs, results = self._part(level, wanted)
                call = graph.call_module(f"part{len(parts)}", tuple(values[n] for n in inputs))
                for i, node in enumerate(results):
                    values[node] = graph.call_function(operator.getitem, (call, i))
                    values[node].meta = dict(node.meta)
                parts.append(part)
                own = [n for n in own if n in wanted and is_scalar_node(n)]
            for node in own:
                values[node] = graph.node_copy(node, values.__getitem__)
        for node in self.writes:
            if self.inside[node] is None:
                graph.node_copy(node, values.__getitem__)
        output = next(n for n in reversed(self.module.graph.nodes) if n.op == "output")
        graph.node_copy(output, values.__getitem__)
        _without_unused(graph)
        held = {f"part{k}": nn.Identity() for k in range(len(parts))}
        whole = GraphModule({**held, **self._attributes(graph)}, graph)
        torchs = [n for n in self.levels.nodes if n in self.levels.eager]
        return Split(
            whole,
            parts,
            [n.name for n in torchs if n.target not in _CHECKS],
            [n.name for n in torchs if n in merged],
        )

    def _wanted(self, level: int) -> set[Node]:
        """The nodes of a part that something outside of it needs."""
        own, found = set(self.parts[level]), set()

        def needs(user: Node) -> bool:
            if user in own:
                # Numbers are computed again outside, of results.
                return user in found and is_scalar_node(user)
            return self.inside.get(user) != level

        for node in reversed(self.parts[level]):
            if any(map(needs, node.users)):
                found.add(node)
        return found

    def _part(self, level: int, wanted: Collection[Node]) -> tuple[Part, list[Node], list[Node]]:
        nodes, graph = self.parts[level], Graph()
        own, writes = set(nodes), [n for n in self.writes if self.inside[n] == level]
        given = {n for node in nodes for n in node.all_input_nodes} - own
        given |= {n.args[0] for n in writes}
        attributes = sorted((n for n in given if n.op == "get_attr"), key=self.order.__getitem__)
        given -= set(attributes)
        given |= self._providers(level, given)
        inputs = sorted(given, key=self.order.__getitem__)
        values: dict[Node, Node] = {}
        for node in inputs:
            values[node] = graph.placeholder(node.name)
            values[node].meta = dict(node.meta)
        for node in (*attributes, *nodes, *writes):
            values[node] = graph.node_copy(node, values.__getitem__)
        results = [n for n in nodes if n in wanted and not is_scalar_node(n)]
        graph.output(tuple(values[n] for n in results))
        module = GraphModule(self._attributes(graph), graph)
        names = [n.name for n in nodes if not is_scalar_node(n)]
        return Part(module, names, [n.name for n in inputs]), inputs, results

    def _providers(self, level: int, inputs: Collection[Node]) -> set[Node]:
        """More inputs, which tell the symbols that the others hold in expressions only."""
        missing = set().union(*(_symbols(n.meta.get("val")) for n in (*self.parts[level], *inputs)))
        missing -= set().union(*map(_told, inputs))
        found = set()
        for node in self.module.graph.nodes:
            ready = node.op == "placeholder" or self.levels.of.get(node, level) < level
            if ready and not missing.isdisjoint(_told(node)):
                missing -= _told(node)
                found.add(node)
        return found

    def _attributes(self, graph: Graph) -> dict[str, Any]:
        found = {}
        for node in graph.nodes:
            if node.op == "get_attr":
                value: Any = self.module
                for name in str(node.target).split("."):
                    value = getattr(value, name)
                found[str(node.target)] = value
        return found


def _without_unused(graph: Graph) -> None:
    """Remove numbers and attributes that only parts needed."""
    for node in reversed(graph.nodes):
        if node.users or node.op not in ("call_function", "get_attr"):
            continue
        if node.op == "get_attr" or is_scalar_node(node):
            graph.erase_node(node)


def _symbols(value: Any) -> set[Any]:
    """The symbols in a ``meta["val"]``."""
    if isinstance(value, SymScalar):
        return set(expression(value).free_symbols)
    if isinstance(value, torch.Tensor):
        return _symbols([*value.shape, *value.stride()])
    if isinstance(value, (list, tuple)):
        return set().union(*map(_symbols, value))
    return set()


def _told(node: Node) -> set[Any]:
    """The symbols that a node's value is, or has as a size."""
    value = node.meta.get("val")
    values: Iterable[Any] = value.shape if isinstance(value, torch.Tensor) else [value]
    found = {expression(v) for v in values if isinstance(v, SymScalar)}
    return {e for e in found if e.is_Symbol}
