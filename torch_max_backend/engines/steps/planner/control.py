"""Branches and loops: tasks that a flag, known only when they run, chooses or repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from torch_max_backend.engines.steps.planner.graph import Block, Node, Value
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.tasks import Branch, Loop, Task
from torch_max_backend.engines.steps.planner.views import View

if TYPE_CHECKING:
    from torch_max_backend.engines.steps.planner.lowering import Lowering


def _if(lowering: Lowering, node: Node) -> None:
    flag = lowering.view(node.operands[0])
    known = lowering.constant_of(flag)
    if known is not None:
        block = node.blocks[0 if known.item() else 1]
        _lower(lowering, block)
        for result, value in zip(node.results, block.results, strict=True):
            lowering.views[result] = lowering.view(value)
        return
    results = [View.whole(r) for r in node.results]

    def branch(block: Block) -> None:
        _lower(lowering, block)
        for to, value in zip(results, block.results, strict=True):
            lowering.copy(lowering.view(value), to, node.origin)

    chosen, otherwise = (lowering.apart(partial(branch, b)) for b in node.blocks)
    lowering.views.update(zip(node.results, results, strict=True))
    lowering.add(Branch(flag, chosen, otherwise, results, node.origin))


def _while(lowering: Lowering, node: Node) -> None:
    condition, body = node.blocks
    # What each round hands on as it was given lies where it lay before the loop.
    carried = [i for i, v in enumerate(body.results) if v is not body.arguments[i]]
    results = {i: View.whole(node.results[i]) for i in carried}
    places = [
        results[i] if i in results else lowering.view(node.operands[i])
        for i in range(len(node.results))
    ]

    def before() -> None:
        for i, to in results.items():
            lowering.copy(lowering.view(node.operands[i]), to, node.origin)

    flag = lowering.new("bool", ())

    def ask() -> None:
        _run(lowering, condition, places)
        lowering.copy(lowering.view(condition.results[0]), View.whole(flag), node.origin)

    def once() -> None:
        _run(lowering, body, places)
        found = {i: lowering.view(body.results[i]) for i in carried}
        memory = {to.root for to in results.values()}
        for i, view in found.items():
            # Another's memory, or other elements of its own, that this round writes as well.
            if view.root in memory:
                value = lowering.new(view.dtype, view.shape)
                lowering.copy(view, View.whole(value), node.origin)
                found[i] = View.whole(value)
        readers = {i: _readers(lowering, to.root) for i, to in results.items()}
        for i, to in results.items():
            lowering.copy(found[i], to, node.origin, readers[i])

    first, condition_tasks, rounds = (lowering.apart(lower) for lower in (before, ask, once))
    lowering.views.update(zip(node.results, places, strict=True))
    whole = View.whole(flag)
    lowering.add(Loop(first, condition_tasks, rounds, whole, [*results.values()], node.origin))


def _run(lowering: Lowering, block: Block, places: list[View]) -> None:
    lowering.views.update(zip(block.arguments, places, strict=True))
    _lower(lowering, block)


def _lower(lowering: Lowering, block: Block) -> None:
    lowering.lower(block.nodes)
    for node in block.nodes:
        if node.op == "MutableStore" and lowering.view(node.operands[0]).root.node is None:
            raise NotPlanned("a branch or loop that writes to an argument", node.origin)


def _readers(lowering: Lowering, root: Value) -> list[Task]:
    """The tasks of the block that is being lowered that read some memory."""
    return [t for t in lowering.tasks if any(view.root is root for view in t.reads)]


OPERATIONS: Mapping[str, Callable[[Lowering, Node], None]] = {"If": _if, "While": _while}
