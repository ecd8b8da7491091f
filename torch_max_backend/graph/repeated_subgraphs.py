"""Parts of a graph that repeat (a transformer's layers), to be compiled once and called often.

Nodes of one layer follow each other in the traced graph, so equal layers are a tandem repeat in
its sequence of nodes: a period p for which node i and node i + p do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from torch_max_backend.graph.shapes import is_scalar_node

# Shorter regions are not worth the fusion that ends at their borders.
_SHORTEST = 6
_PERIODS_TRIED = 24


@dataclass(frozen=True)
class Instance:
    """One of several equal regions.

    Attributes:
        nodes: Its nodes, in order.
        inputs: The nodes from outside that it uses; position by position what the other
            instances take there.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Region:
    """Regions that are equal but for what they are given.

    Attributes:
        instances: All of them.
        outputs: Positions among the nodes of an instance whose values are used outside of it.
    """

    instances: tuple[Instance, ...]
    outputs: tuple[int, ...]


def find_regions(
    nodes: Sequence[Node], label: Callable[[Node], str], is_heavy: Callable[[Node], bool]
) -> list[Region]:
    """Repeated regions, those first that save most; none overlap.

    Args:
        nodes: The nodes to convert, in order.
        label: What a node does: two nodes of one label may be converted by one conversion if they
            are given the same.
        is_heavy: Whether a node is worth a region: one without any such node stays as it is.
    """
    numbers: dict[str, int] = {}
    labels = [numbers.setdefault(label(n), len(numbers)) for n in nodes]
    heavy = [is_heavy(n) for n in nodes]
    found: list[Region] = []
    pending = [(0, len(nodes))]
    while pending:
        start, end = pending.pop()
        best = _best_repeat(nodes, labels, heavy, start, end)
        if best is None:
            continue
        region, first, last = best
        found.append(region)
        pending += [(start, first), (last, end)]
    return found


def _best_repeat(
    nodes: Sequence[Node], labels: Sequence[int], heavy: Sequence[bool], start: int, end: int
) -> tuple[Region, int, int] | None:
    """The repeat in a stretch of nodes that saves most, with its first and end position."""
    candidates: list[tuple[int, int, int, int]] = []
    for period in _periods(labels, start, end):
        for first, stop in _runs(labels, period, start, end):
            count = (stop - first) // period
            candidates.append(((count - 1) * period, period, first, stop))
    for saved, period, first, stop in sorted(candidates, key=lambda c: (-c[0], c[1])):
        if saved < _SHORTEST or not any(heavy[first : first + period]):
            continue
        best: tuple[int, Region, int, int] | None = None
        # Where layers begin is free within what the run has to spare: fewest values cross there.
        spare = (stop - first) % period
        for shift in range(min(spare, period - 1) + 1):
            made = _region(nodes, first + shift, period, (stop - first - shift) // period)
            if made is None:
                continue
            region, begin = made
            crossing = len(region.outputs) + len(region.instances[0].inputs)
            if best is None or crossing < best[0]:
                best = crossing, region, begin, begin + period * len(region.instances)
        if best is not None:
            return best[1:]
    return None


def _periods(labels: Sequence[int], start: int, end: int) -> list[int]:
    """Distances at which labels recur, the most frequent first."""
    seen: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for i in range(start, end):
        last = seen.get(labels[i])
        if last is not None and i - last >= _SHORTEST:
            distances[i - last] += 1
        seen[labels[i]] = i
    periods = [p for p, _ in distances.most_common(_PERIODS_TRIED)]
    # A label that occurs twice a layer shows the layer only as a sum of its distances.
    sums = {a + b for a in periods[:6] for b in periods[:6] if a + b <= (end - start) // 2}
    return [*periods, *(s for s in sums if s not in distances)]


def _runs(labels: Sequence[int], period: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Stretches of at least two periods in which labels recur at this distance."""
    first = start
    for i in range(start, end - period + 1):
        if i < end - period and labels[i] == labels[i + period]:
            continue
        if i - first >= period:
            yield first, i + period
        first = i + 1


def _region(
    nodes: Sequence[Node], first: int, period: int, count: int
) -> tuple[Region, int] | None:
    """The longest row of instances, among ``count``, that are wired alike inside."""
    parts = [nodes[first + k * period : first + (k + 1) * period] for k in range(count)]
    wirings = [_wiring(part) for part in parts]
    best, begin = (0, 0), 0
    for k in range(1, count + 1):
        if k == count or wirings[k][0] != wirings[begin][0]:
            best = max(best, (k - begin, -begin))
            begin = k
    length, begin = best[0], -best[1]
    if length < 2:
        return None
    chosen = range(begin, begin + length)
    # Operands that are one node in each instance are one input.
    slots = list(dict.fromkeys(zip(*(wirings[k][1] for k in chosen), strict=True)))
    kinds = [{_kind(n) for n in slot} for slot in slots]
    if any(len(k) > 1 or None in k for k in kinds):
        return None
    instances = tuple(
        Instance(tuple(parts[k]), tuple(slot[i] for slot in slots)) for i, k in enumerate(chosen)
    )
    used: set[int] = set()
    for k in chosen:
        used.update(_outputs(parts[k]))
    if any(_kind(parts[begin][o]) is None for o in used):
        return None
    return Region(instances, tuple(sorted(used))), first + begin * period


def pieces(
    nodes: Sequence[Node], regions: Sequence[Region]
) -> list[tuple[Region, Instance, int]] | None:
    """A graph cut into the instances of its regions and, between them, regions of one instance.

    Args:
        nodes: The nodes to convert, in order.
        regions: Their repeated regions.

    Returns:
        The pieces in order, each as its region, the instance and the instance's number: from 1 in
        a repeated region, 0 in one of its own. ``None`` if something else than a tensor, such as
        the several results of an operator, crosses from one piece to another.
    """
    starts = {
        instance.nodes[0]: (region, instance, number)
        for region in regions
        for number, instance in enumerate(region.instances, 1)
    }
    found: list[tuple[Region, Instance, int]] = []
    between: list[Node] = []
    inside: set[Node] = set()
    for node in nodes:
        if node in inside:
            continue
        if node not in starts:
            between.append(node)
            continue
        if between:
            found.append(_alone(between))
            between = []
        found.append(starts[node])
        inside.update(starts[node][1].nodes)
    if between:
        found.append(_alone(between))
    crossing = (n for _, instance, _ in found for n in instance.inputs)
    results = (instance.nodes[o] for region, instance, _ in found for o in region.outputs)
    return None if any(_kind(n) is None for n in (*crossing, *results)) else found


def _alone(nodes: Sequence[Node]) -> tuple[Region, Instance, int]:
    instance = Instance(tuple(nodes), tuple(dict.fromkeys(_wiring(nodes)[1])))
    return Region((instance,), _outputs(nodes)), instance, 0


def _outputs(part: Sequence[Node]) -> tuple[int, ...]:
    """Positions of the nodes whose values are used outside of the part."""
    own = set(part)
    return tuple(o for o, n in enumerate(part) if any(u not in own for u in n.users))


def _wiring(part: Sequence[Node]) -> tuple[tuple[Any, ...], list[Node]]:
    """For each operand its position in the part, below 0 for one from outside, another number for
    each; and those, in order. Where one part is given one node in two places, so is its equal."""
    position = {n: i for i, n in enumerate(part)}
    inside: list[int] = []
    outside: list[Node] = []
    for node in part:
        for operand in _operands(node):
            at = position.setdefault(operand, -1 - len(outside))
            inside.append(at)
            if at < 0:
                outside.append(operand)
    return tuple(inside), outside


def _operands(node: Node) -> list[Node]:
    found: list[Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return [n for n in found if not is_scalar_node(n)]


def _kind(node: Node) -> str | None:
    """What an instance must be given there; ``None`` for several tensors."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    return f"{value.dtype} {list(value.shape)} {value.device}"
