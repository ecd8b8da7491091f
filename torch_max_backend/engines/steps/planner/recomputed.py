"""What is cheaper to compute again than to keep: values between a reduction and what follows it.

The gradient of a softmax of bfloat16 sums products of two casts, and then needs a cast and the
products again. Kept, these are 8 bytes an element that are written and read; computed again, 4 that
are read, most often from the caches, as both steps become one function of rows (`row_pairs.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch_max_backend.engines.steps.planner.code import key
from torch_max_backend.engines.steps.planner.fusion import MOST
from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.groups import Group, is_all_of
from torch_max_backend.engines.steps.planner.tasks import Pointwise
from torch_max_backend.engines.steps.planner.views import View, same_strides
from torch_max_backend.engines.steps.programs import itemsize

# Instructions that take no longer than a load.
_CHEAP = frozenset(
    {
        "cast", "negative", "abs", "add", "sub", "mul", "max", "min", "relu", "select", "and", "or",
        "xor", "not", "equal", "not_equal", "greater", "greater_equal",
    }
)  # fmt: skip


def recompute(groups: list[Group], kept: Collection[Value], aliases: Mapping[Value, Value]) -> None:
    """Replace groups by ones that also have what they need to make values of earlier groups
    themselves, where less memory is read and written so. A task is then in several groups.

    Args:
        groups: Groups in the order in which they run; changed.
        kept: Values that are not only temporary, or that are written more than once.
        aliases: Values that lie in the memory of another.
    """
    _Recomputing(groups, kept, aliases).run()


class _Recomputing:
    def __init__(
        self, groups: list[Group], kept: Collection[Value], aliases: Mapping[Value, Value]
    ) -> None:
        self.groups = groups
        self.kept, self.aliases = kept, aliases
        self.readers: dict[Value, set[int]] = {}
        self.writers: dict[Value, list[int]] = {}
        self.place = {t: i for i, t in enumerate(t for group in groups for t in group.tasks)}
        for i, group in enumerate(groups):
            for task in group.tasks:
                for view in task.reads:
                    self.readers.setdefault(view.root, set()).add(i)
                for view in task.writes:
                    self.writers.setdefault(aliases.get(view.root, view.root), []).append(i)

    def run(self) -> None:
        for i, group in enumerate(self.groups):
            if group.reduces:
                for task in group.tasks:
                    if isinstance(task, Pointwise):
                        self._consider(i, task)

    def _consider(self, above: int, task: Pointwise) -> None:
        """Have the other groups that read the result of a task compute it, if that pays."""
        first = self.groups[above]
        if above not in self.readers.get(task.to.root, ()):
            return
        others = self._readers_of(task)
        needed = self._needed(above, task, max(others, default=above))
        if not others or needed is None:
            return
        again = [t for t in first.tasks if isinstance(t, Pointwise) and t in needed]
        made = {i: self._with(self.groups[i], first, again) for i in others}
        for i, group in made.items():
            if not self._reads_alike(first, self.groups[i], again) or len(group.tasks) > MOST:
                return
        before = sum(_bytes_read(self.groups[i]) for i in others)
        after = sum(map(_bytes_read, made.values()))
        stored = [(t, self._readers_of(t)) for t in again]
        saved = sum(itemsize(t.dtype) for t, by in stored if by and set(by) <= made.keys())
        if after < before + saved:
            for i, group in made.items():
                self.groups[i] = group

    def _readers_of(self, task: Pointwise) -> list[int]:
        """The groups that read what a task makes, and do not make it themselves."""
        readers = sorted(self.readers.get(task.to.root, ()))
        return [i for i in readers if task not in self.groups[i].tasks]

    def _reads_alike(self, first: Group, second: Group, tasks: Sequence[Pointwise]) -> bool:
        """Whether a group is over the same sizes as the one that runs some tasks, and reads what
        they make element for element."""
        to = {t.to.root: first.writes[t] for t in tasks}
        return first.space == second.space and all(
            read.offset == to[read.root].offset
            and same_strides(second.space, read.strides, to[read.root].strides)
            for reads in second.reads.values()
            for read in reads
            if isinstance(read, View) and read.root in to
        )

    def _needed(self, above: int, task: Pointwise, last: int) -> set[Pointwise] | None:
        """The tasks of a group that make a value, if all are cheap and what they read stays until
        another group has run."""
        group = self.groups[above]
        makers = {t.to.root: t for t in group.tasks if isinstance(t, Pointwise)}
        found: set[Pointwise] = set()
        waiting = [task]
        while waiting:
            maker = waiting.pop()
            root = maker.to.root
            if maker in found:
                continue
            if maker.name not in _CHEAP or maker.after or not is_all_of(maker.to):
                return None
            if root in self.kept or root in self.aliases:
                return None
            found.add(maker)
            for view in group.reads[maker]:
                if not isinstance(view, View):
                    continue
                if view.root in makers:
                    waiting.append(makers[view.root])
                elif self._changes(view.root, above, last):
                    return None
        return found

    def _with(self, group: Group, first: Group, again: Sequence[Pointwise]) -> Group:
        """A group that also runs tasks of an earlier one."""
        added = [t for t in again if t not in group.tasks]
        return Group(
            sorted([*added, *group.tasks], key=self.place.__getitem__),
            group.space,
            group.order,
            {**group.reads, **{t: first.reads[t] for t in added}},
            {**group.writes, **{t: first.writes[t] for t in added}},
        )

    def _changes(self, root: Value, above: int, last: int) -> bool:
        writers = self.writers.get(self.aliases.get(root, root), ())
        return any(above <= i <= last for i in writers)


def _bytes_read(group: Group) -> int:
    """Bytes of an element that a group reads of memory it does not make, without what it reads
    again and again."""
    made = {t.to.root for t in group.tasks if isinstance(t, Pointwise)}
    views = {
        key(v): v
        for reads in group.reads.values()
        for v in reads
        if isinstance(v, View) and v.root not in made
    }
    return sum(itemsize(v.dtype) for v in views.values() if not v.repeats())
