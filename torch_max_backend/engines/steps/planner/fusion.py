"""Which element-wise operations run in one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.groups import (
    Group,
    extent,
    is_all_of,
    read_of,
    reshaped,
)
from torch_max_backend.engines.steps.planner.sizes import product
from torch_max_backend.engines.steps.planner.tasks import Pointwise, Reduce, Task
from torch_max_backend.engines.steps.planner.views import View, same_strides

# Operations of one pass: more would not keep their registers in the first cache.
MOST = 48
# Different memory that one pass reads.
MOST_VIEWS = 24
# Elements that are worth being read once by two passes, and tasks between those at most: what waits
# for the second one keeps its memory.
LARGE, NEAR = 16384, 24


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
            if producer not in self.group or not is_all_of(producer.to):
                continue
            above, below = self.group[producer], self.group[task]
            if above is below or above.reduces:
                continue
            if self._fits(above, below) and not self._circular(above, below):
                self._merge(above, below, producer, task, view)

    def _join_neighbours(self) -> None:
        """Join groups that read the same memory element for element, so that it is read once."""
        readers: dict[Any, list[tuple[Group, View]]] = {}
        for group in dict.fromkeys(self.group[t] for t in self.tasks):
            for reads in group.reads.values() if self._keeps_still(group) else ():
                for view in reads:
                    if isinstance(view, View) and self._is_large(group, view):
                        known = readers.setdefault((view.root, view.offset, extent(view)), [])
                        if all(group is not other for other, _ in known):
                            known.append((group, view))
        for known in readers.values():
            for one, view in known[1:]:
                first, other = self.group[known[0][0].tasks[0]], self.group[one.tasks[0]]
                if first is not other and self._are_neighbours(first, other):
                    self._join_over_one_space(first, other, view)

    def _join_over_one_space(self, first: Group, other: Group, view: View) -> None:
        """Join two groups that read a view's memory, once the dims of both are in one order."""
        turned, fixed = (other, first) if first.reduces else (first, other)
        here, there = read_of(turned, view), read_of(fixed, view)
        if here is None or there is None:
            return
        if here.strides != there.strides or turned.space != fixed.space:
            changed = reshaped(turned, fixed.space, here, there)
            if changed is None:
                return
            turned.space, turned.reads, turned.writes = changed
        if not self._torn(first, other):
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
        if view.shape != group.space or view.repeats():
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
        if not self._fits(a, b):
            return False
        return not self._circular(a, b) or self._cut_between(a, b)

    def _cut_between(self, a: Group, b: Group) -> bool:
        """Whether two groups can run as one once small groups are cut in two: into what needs
        neither of them, which comes before, and what needs one, which comes after. They are
        cut only then."""
        begin, end = min(a.order, b.order), max(self._last(a), self._last(b))
        between = list(dict.fromkeys(self.group[t] for t in self.tasks[begin:end]))
        behind = {*a.tasks, *b.tasks}
        for task in self.tasks[begin : max(map(self._last, between), default=end) + 1]:
            if any(n in behind for n in self.needs[task]):
                behind.add(task)
        whole = []
        for group in between:
            if group is a or group is b:
                continue
            late = [t for t in group.tasks if t in behind]
            if 0 < len(late) < len(group.tasks) and self._is_small(group):
                whole.append(group)
                self._cut(group, late)
        if not self._circular(a, b):
            return True
        for group in whole:
            self.group.update(dict.fromkeys(group.tasks, group))
        return False

    def _is_small(self, group: Group) -> bool:
        """Whether two passes over its memory cost next to nothing."""
        count = product(group.space)
        return isinstance(count, int) and count < LARGE // 4

    def _cut(self, group: Group, late: list[Task]) -> None:
        """Make two groups of one: its late tasks and those before."""
        early = [t for t in group.tasks if t not in late]
        for tasks in (early, late):
            part = Group(
                tasks,
                group.space,
                min(self.place[t] for t in tasks),
                {t: group.reads[t] for t in tasks},
                {t: group.writes[t] for t in tasks},
            )
            self.group.update(dict.fromkeys(tasks, part))

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
        if not is_all_of(view):
            return
        reads = below.reads[task]
        seen = next((r for r in reads if isinstance(r, View) and r.root is view.root), None)
        if seen is None:
            return
        if not self._same_place(above, below, made, seen):
            changed = None if below.reduces else reshaped(below, above.space, seen, made)
            if changed is not None:
                below.space, below.reads, below.writes = changed
            else:
                changed = reshaped(above, below.space, made, seen)
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
