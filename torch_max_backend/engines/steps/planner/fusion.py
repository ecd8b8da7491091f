"""Which element-wise operations run in one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.sizes import Sizes, product
from torch_max_backend.engines.steps.planner.tasks import Number, Pointwise, Reduce, Task
from torch_max_backend.engines.steps.planner.views import View, same_strides

# Operations of one pass: more would not keep their registers in the first cache.
MOST = 48
# Different memory that one pass reads.
MOST_VIEWS = 24
# Elements that are worth being read once by two passes, and tasks between those at most: what waits
# for the second one keeps its memory.
LARGE, NEAR = 16384, 24


@dataclass(eq=False)
class Group:
    """Tasks that run as one step: element-wise ones over the same sizes, or one of another kind.

    Attributes:
        tasks: In an order in which they can run.
        space: The sizes over which they run; of a reduction, its last dim is reduced.
        order: Where the first of them is in the graph.
    """

    tasks: list[Task]
    space: Sizes = ()
    order: int = 0
    # What each reads and where it writes, in the dims of ``space``.
    reads: dict[Task, list[View | Number]] = field(default_factory=dict)
    writes: dict[Task, View] = field(default_factory=dict)

    @property
    def reduces(self) -> bool:
        return any(isinstance(t, Reduce) for t in self.tasks)


def fused(tasks: list[Task], aliases: Mapping[Value, Value]) -> list[Group]:
    """The tasks as groups, in an order in which they can run.

    Args:
        tasks: The tasks of a graph, in order.
        aliases: Values that lie in the memory of another.
    """
    found = _Fusion(tasks, aliases).run()
    if found is None:
        found = _Fusion(tasks, aliases, careful=True).run()
    assert found is not None, "groups need each other"
    return found


class _Fusion:
    """Groups that grow.

    Args:
        tasks: The tasks of a graph, in order.
        aliases: Values that lie in the memory of another.
        careful: Whether what needs what is followed to the begin of the graph, and not only to the
            first task of the groups in question. Before that may be one that is in a group with a
            later one, which is seldom, and to look there each time takes a square of the tasks.
    """

    def __init__(
        self, tasks: list[Task], aliases: Mapping[Value, Value], careful: bool = False
    ) -> None:
        self.tasks = tasks
        self.careful = careful
        self.aliases = aliases
        self.in_place = {*aliases, *aliases.values()}
        self.place = {t: i for i, t in enumerate(tasks)}
        self.group: dict[Task, Group] = {}
        self.writers: dict[Value, list[Task]] = {}
        for task in tasks:
            for view in task.writes:
                self.writers.setdefault(view.root, []).append(task)
        self.needs = {t: self._needed(t) for t in tasks}

    def _needed(self, task: Task) -> list[Task]:
        """The tasks that have to run before."""
        before = list(task.after)
        for view in task.reads:
            # Not those that write to an argument once it has been read.
            writers = self.writers.get(view.root, ())
            before += [w for w in writers if self.place[w] < self.place[task]]
        return list(dict.fromkeys(before))

    def run(self) -> list[Group] | None:
        """The groups in order; ``None`` if some need each other, which never happens to the
        careful."""
        for i, task in enumerate(self.tasks):
            group = Group([task], order=i)
            if isinstance(task, Pointwise):
                group.space = task.space
                group.reads[task] = list(task.operands)
                group.writes[task] = task.to
            elif isinstance(task, Reduce):
                group.space = task.space
                group.reads[task] = [task.operand]
                group.writes[task] = task.to
            self.group[task] = group
            if isinstance(task, (Pointwise, Reduce)):
                self._join_producers(task)
        self._join_neighbours()
        return self._ordered()

    # Merging

    def _join_producers(self, task: Task) -> None:
        for view in task.reads:
            producers = self.writers.get(view.root, ())
            if len(producers) != 1 or not isinstance(producers[0], Pointwise):
                continue
            producer = producers[0]
            if producer not in self.group or not _is_all_of(producer.to):
                continue
            above, below = self.group[producer], self.group[task]
            if above is below or above.reduces:
                continue
            if self._fits(above, below) and not self._circular(above, below):
                self._merge(above, below, producer, task, view)

    def _join_neighbours(self) -> None:
        """Join groups that read the same memory element for element, so that it is read once."""
        readers: dict[Any, list[Group]] = {}
        for group in dict.fromkeys(self.group[t] for t in self.tasks):
            for reads in group.reads.values() if self._keeps_still(group) else ():
                for view in reads:
                    if isinstance(view, View) and self._is_large(group, view):
                        key = (view.root, view.offset, view.strides, group.space)
                        known = readers.setdefault(key, [])
                        if group not in known:
                            known.append(group)
        for groups in readers.values():
            for one in groups[1:]:
                first, other = self.group[groups[0].tasks[0]], self.group[one.tasks[0]]
                if first is not other and self._are_neighbours(first, other):
                    self._join(first, other)

    def _keeps_still(self, group: Group) -> bool:
        """Whether none of a group's memory is written in place: a group that has been joined may
        run later or earlier than its own tasks would."""
        for task in group.tasks:
            if any(view.root in self.in_place for view in (*task.reads, *task.writes)):
                return False
            for view in task.reads:
                writers = self.writers.get(view.root, ())
                if any(self.place[w] > self.place[task] for w in writers):
                    return False
        return True

    def _is_large(self, group: Group, view: View) -> bool:
        """Whether a group reads enough of some memory, each element of it for one of its own."""
        if view.shape != group.space or any(
            s == 0 and n != 1 for n, s in zip(view.shape, view.strides, strict=True)
        ):
            return False
        count = product(view.shape)
        return not isinstance(count, int) or count >= LARGE

    def _are_neighbours(self, a: Group, b: Group) -> bool:
        """Whether two groups may run as one, near each other and neither after the other."""
        if max(a.order, b.order) - min(self._last(a), self._last(b)) > NEAR:
            return False
        for one, other in ((a, b), (b, a)):
            if any(self.group[n] is other for t in one.tasks for n in self.needs[t]):
                return False
        return self._fits(a, b) and not self._torn(a, b) and not self._circular(a, b)

    def _fits(self, above: Group, below: Group) -> bool:
        if len(above.tasks) + len(below.tasks) > MOST:
            return False
        views = {
            (v.root, v.offset, v.strides)
            for g in (above, below)
            for reads in g.reads.values()
            for v in reads
            if isinstance(v, View)
        }
        return len(views) <= MOST_VIEWS

    def _circular(self, above: Group, below: Group) -> bool:
        """Whether one of the two needs the other through a third."""
        both = (above, below)
        first = 0 if self.careful else min(g.order for g in both)
        waiting = [
            self.group[n]
            for g in both
            for t in g.tasks
            for n in self.needs[t]
            if self.group[n] not in both
        ]
        seen: set[Group] = set()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for task in at.tasks:
                for need in self.needs[task]:
                    other = self.group[need]
                    if other in both:
                        return True
                    if other not in seen and self._last(other) >= first:
                        waiting.append(other)
        return False

    def _last(self, group: Group) -> int:
        return max(self.place[t] for t in group.tasks) if len(group.tasks) > 1 else group.order

    def _merge(
        self, above: Group, below: Group, producer: Pointwise, task: Task, view: View
    ) -> None:
        """Make the two groups one, if both can run over the sizes of one of them."""
        made = above.writes[producer]
        # What the task reads, as it lies in the memory that the producer writes densely.
        if not _is_all_of(view):
            return
        reads = below.reads[task]
        seen = next((r for r in reads if isinstance(r, View) and r.root is view.root), None)
        if seen is None:
            return
        if not self._same_place(above, below, made, seen):
            changed = None if below.reduces else _reshaped(below, above.space, seen, made)
            if changed is not None:
                below.space, below.reads, below.writes = changed
            else:
                changed = _reshaped(above, below.space, made, seen)
                if changed is None:
                    return
                above.space, above.reads, above.writes = changed
        if self._torn(above, below):
            return
        self._join(above, below)

    def _join(self, above: Group, below: Group) -> None:
        below.tasks = sorted(above.tasks + below.tasks, key=self.place.__getitem__)
        below.reads |= above.reads
        below.writes |= above.writes
        below.order = min(above.order, below.order)
        for t in above.tasks:
            self.group[t] = below

    def _same_place(self, above: Group, below: Group, made: View, seen: View) -> bool:
        """Whether both run over the same sizes, and element for element."""
        return (
            above.space == below.space
            and made.offset == seen.offset
            and same_strides(above.space, made.strides, seen.strides)
        )

    def _same_memory(self, a: Value, b: Value) -> bool:
        return self.aliases.get(a, a) is self.aliases.get(b, b)

    def _torn(self, above: Group, below: Group) -> bool:
        """Whether one writes to memory that the other reads at other places meanwhile."""
        for a, b in ((above, below), (below, above)):
            for task, to in a.writes.items():
                if isinstance(task, Reduce):
                    if any(
                        isinstance(r, View) and self._same_memory(r.root, to.root)
                        for reads in b.reads.values()
                        for r in reads
                    ):
                        return True
                    continue
                for reads in b.reads.values():
                    for r in reads:
                        if (
                            isinstance(r, View)
                            and self._same_memory(r.root, to.root)
                            and not (
                                r.offset == to.offset
                                and same_strides(r.shape, r.strides, to.strides)
                            )
                        ):
                            return True
        return False

    # Order

    def _ordered(self) -> list[Group] | None:
        groups = list(dict.fromkeys(self.group[t] for t in self.tasks))
        needs = {g: {self.group[n] for t in g.tasks for n in self.needs[t]} - {g} for g in groups}
        users: dict[Group, list[Group]] = {g: [] for g in groups}
        for g, before in needs.items():
            for b in before:
                users[b].append(g)
        # As late in the graph as its last task: what it makes is used soon after.
        import heapq

        ready = [(self._last(g), id(g), g) for g in groups if not needs[g]]
        heapq.heapify(ready)
        result = []
        while ready:
            *_, group = heapq.heappop(ready)
            result.append(group)
            for user in users[group]:
                needs[user].discard(group)
                if not needs[user]:
                    heapq.heappush(ready, (self._last(user), id(user), user))
        return result if len(result) == len(groups) else None


def _is_all_of(view: View) -> bool:
    """Whether a view has each element of its root's memory once."""
    if product(view.shape) != product(view.root.shape):
        return False
    return all(s != 0 or n == 1 for n, s in zip(view.shape, view.strides, strict=True))


def _reshaped(
    group: Group, space: Sizes, here: View, there: View
) -> tuple[Sizes, dict[Task, list[View | Number]], dict[Task, View]] | None:
    """A group over other sizes, or ``None`` where its memory does not allow that.

    Args:
        group: The group.
        space: The sizes.
        here: Memory as the group has it.
        there: The same memory as the other group has it, over ``space``.
    """
    order = _permutation(here, there, space)
    if order is not None:
        turn = [*order]

        def change(view: View) -> View | None:
            return view.transpose(turn)

    elif here.is_dense() and there.is_dense() and here.offset == there.offset:

        def change(view: View) -> View | None:
            return view.reshape(space)

    else:
        return None
    reads: dict[Task, list[View | Number]] = {}
    writes: dict[Task, View] = {}
    for task in group.tasks:
        changed: list[Any] = []
        for view in group.reads[task]:
            new = change(view) if isinstance(view, View) else view
            if new is None:
                return None
            changed.append(new)
        to = change(group.writes[task])
        if to is None or isinstance(task, Reduce):
            return None
        reads[task], writes[task] = changed, to
    return space, reads, writes


def _permutation(here: View, there: View, space: Sizes) -> list[int] | None:
    """The order of the dims of ``here`` that makes it ``there``."""
    if len(here.shape) != len(space) or here.offset != there.offset:
        return None
    order = []
    for size, stride in zip(space, there.strides, strict=True):
        found = [
            i
            for i, (n, s) in enumerate(zip(here.shape, here.strides, strict=True))
            if n == size and s == stride and i not in order
        ]
        if not found:
            return None
        order.append(found[0])
    return order
