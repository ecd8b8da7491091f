"""Graphs with sizes that data decides, cut in two: what counts, and what uses the counts as sizes.

A lowering makes a size of a count by a range up to it (``ops.common.data_sizes``). All that can be
computed before such a size is known is one plan, and the rest, which may be cut again, the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch_max_backend.engines.steps.planner.graph import Node, StepGraph, Value
from torch_max_backend.engines.steps.planner.movement import VIEWS
from torch_max_backend.engines.steps.planner.sizes import Expr, Size, names_in, symbols_of


@dataclass
class Cut:
    """A graph as two.

    Attributes:
        first: Its last results are the counts, one for each of ``names``.
        names: The symbols that these are the values of.
        rest: Its inputs are those of the graph, then the results of ``first``; in place of each
            count something that has it as a size.
        results: Of each result of the graph whether ``first`` makes it, else ``rest``, and which
            result that is there.
    """

    first: StepGraph
    names: Sequence[str]
    rest: StepGraph
    results: Sequence[tuple[bool, int]]


def cut(graph: StepGraph) -> Cut | None:
    """The graph up to the sizes that it counts first, and from there; ``None`` if it counts
    none."""
    halves = _Halves(symbols_of(v.shape for v in graph.inputs))
    for node in graph.nodes:
        halves.add(node)
    return _joined(graph, halves) if halves.counts else None


class _Halves:
    """The nodes of a graph, as they come.

    Attributes:
        first: Those that need no new size.
        rest: The others, and what writes to arguments.
        counts: By symbol the count that becomes a size.
        makers: The nodes of ``first`` by what they make.
        fixed: The values that no input of the graph tells.
    """

    def __init__(self, symbols: Collection[str]) -> None:
        self.known = set(symbols)
        self.first: list[Node] = []
        self.rest: list[Node] = []
        self.counts: dict[str, Value] = {}
        self.makers: dict[Value, Node] = {}
        self.fixed: set[Value] = set()
        self._late: set[Value] = set()

    def add(self, node: Node) -> None:
        read = _read_by(node)
        late = not self._late.isdisjoint(read) or node.op == "MutableStore"
        if not late and node.op == "Range" and self._is_count(node.operands[1]):
            self.rest += self._sized(node)
        elif late or any(names_in(size) - self.known for size in _sizes_in(node)):
            self.rest.append(node)
        else:
            self.first.append(node)
            self.makers.update(dict.fromkeys(node.results, node))
            if node.op != "Custom" and not node.blocks and self.fixed.issuperset(read):
                self.fixed.update(node.results)
            return
        self._late.update(node.results)

    def _is_count(self, value: Value) -> bool:
        """Whether a kernel has computed a number."""
        made = self.base(value)
        return made in self.makers and self.makers[made].op == "Custom"

    def base(self, value: Value) -> Value:
        """The value that a value is a view of."""
        while value in self.makers and self.makers[value].op in VIEWS:
            operands = self.makers[value].operands
            if not operands:
                break
            value = operands[0]
        return value

    def _sized(self, node: Node) -> list[Node]:
        """A range whose end is a count, as one whose end is a size."""
        (result,) = node.results
        (size,) = result.shape
        name = str(size)
        fresh = name.isidentifier() and name not in self.known and name not in self.counts
        if not fresh:
            taken = {*self.known, *self.counts}
            name = next(n for i in itertools.count() if (n := f"found{i}") not in taken)
        self.counts[name] = node.operands[1]
        symbol = (Expr.symbol(name),)
        end = _node("ShapeToTensor", [], Value("int64", ()), node.origin, sizes=symbol)
        numbers = result if fresh else Value(result.dtype, symbol)
        operands = [node.operands[0], end.results[0], node.operands[2]]
        made = [end, _node("Range", operands, numbers, node.origin)]
        if not fresh:
            # The size has a name already: that the two are equal is checked.
            made.append(_node("Rebind", [numbers], result, node.origin))
        return made


def _node(op: str, operands: list[Value], result: Value, origin: Any, **attributes: Any) -> Node:
    return Node(op, operands, [result], attributes, origin=origin)


def _joined(graph: StepGraph, halves: _Halves) -> Cut:
    """The halves as graphs: what is handed from one to the other is as little as may be."""
    handed = _results_of_first(graph, halves)
    again: set[Node] = set()
    waiting = [v for node in halves.rest for v in _read_by(node)]
    waiting += [v for v in graph.outputs if v not in handed]
    seen = set(handed)
    while waiting:
        value = waiting.pop()
        if value in seen or value not in halves.makers:
            continue
        seen.add(value)
        node = halves.makers[value]
        if node.op in VIEWS or value in halves.fixed:
            again.add(node)
            waiting += _read_by(node)
        else:
            handed[value] = None
    counted = [Value("bool", (Expr.symbol(name), 0)) for name in halves.counts]
    first = StepGraph(graph.inputs, frozenset(), halves.first, [*handed, *halves.counts.values()])
    places = {v: i for i, v in enumerate(handed)}
    results: list[tuple[bool, int]] = []
    left: list[Value] = []
    for value in graph.outputs:
        # What is returned twice are two tensors.
        if value in places and (True, places[value]) not in results:
            results.append((True, places[value]))
        else:
            results.append((False, len(left)))
            left.append(value)
    rest = StepGraph(
        [*graph.inputs, *handed, *counted],
        graph.mutable,
        [*(n for n in halves.first if n in again), *halves.rest],
        left,
    )
    return Cut(first, list(halves.counts), rest, results)


def _results_of_first(graph: StepGraph, halves: _Halves) -> dict[Value, None]:
    """The results of the graph that its first half computes: no views of arguments."""
    made = halves.makers.keys() - halves.fixed
    return {v: None for v in graph.outputs if v in halves.makers and halves.base(v) in made}


def _read_by(node: Node) -> list[Value]:
    """What a node reads, with what the operations inside it take from around it."""
    found = list(node.operands)
    for block in node.blocks:
        inside = {*block.arguments, *(r for n in block.nodes for r in n.results)}
        read = [*block.results, *(v for n in block.nodes for v in _read_by(n))]
        found += [v for v in read if v not in inside]
    return found


def _sizes_in(node: Node) -> Iterator[Size]:
    """All sizes that a node, and what is inside it, mentions."""
    for value in node.results:
        yield from value.shape
    for attribute in node.attributes.values():
        if isinstance(attribute, tuple):
            yield from (s for s in attribute if isinstance(s, Expr))
    for block in node.blocks:
        for inner in block.nodes:
            yield from _sizes_in(inner)
