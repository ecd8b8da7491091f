"""Arguments that a graph changes in part: the part is written where it is.

AOTAutograd makes ``x[3] = y`` a new tensor, ``x`` with a row replaced, and stores that in ``x`` at
the end. Done so, a cache of keys and values would be copied twice for each token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from torch_max_backend.engines.steps.planner.graph import StepGraph, Value
from torch_max_backend.engines.steps.planner.sizes import product
from torch_max_backend.engines.steps.planner.tasks import (
    Branch,
    Kernel,
    Loop,
    Lowered,
    Pointwise,
    Task,
)
from torch_max_backend.engines.steps.planner.views import View, same_strides

# Kernels whose result starts as their first operand. They do not copy it where both are the same
# memory.
_STARTING_FROM = frozenset({"tmb_scatter_rows", "tmb_scatter_elements"})


@dataclass
class _Change:
    """A value that is another one with a part replaced.

    Attributes:
        value: The changed value.
        base: What it was before.
        writers: The tasks that write the part.
        copies: The tasks that copy the rest.
    """

    value: Value
    base: Value
    writers: Sequence[Task]
    copies: Collection[Task]


def write_in_place(work: Lowered, graph: StepGraph) -> None:
    """Have changes of arguments, and of what loops carry, written to where they are, where nothing
    needs the old values afterwards: they become ``aliases``, and what copied them leaves the
    tasks."""
    buffers = {graph.inputs[i] for i in graph.mutable}
    if buffers:
        _InPlace(work, buffers).run()
    for task in work.tasks:
        _inside(task, work)


def _inside(task: Task, work: Lowered) -> None:
    if not isinstance(task, (Branch, Loop)):
        return
    if isinstance(task, Loop):
        body = replace(work, tasks=task.body)
        _InPlace(body, {view.root for view in task.results}).run()
        task.body = body.tasks
    for block in task.blocks:
        for inner in block:
            _inside(inner, work)


class _InPlace:
    def __init__(self, work: Lowered, buffers: Collection[Value]) -> None:
        self.work = work
        self.buffers = buffers
        self.place = {task: i for i, task in enumerate(work.tasks)}
        self.writers: dict[Value, list[Task]] = {}
        self.readers: dict[Value, list[Task]] = {}
        for task in work.tasks:
            for view in task.writes:
                self.writers.setdefault(view.root, []).append(task)
            for root in {view.root for view in task.reads}:
                self.readers.setdefault(root, []).append(task)
        self.gone: set[Task] = set()

    def run(self) -> None:
        """Find what can be, and take the copies from the tasks."""
        for task in self.work.tasks:
            if isinstance(task, Pointwise) and task.to.root in self.buffers:
                self._store(task)
        if not self.gone:
            return
        self.work.tasks = self._ordered([t for t in self.work.tasks if t not in self.gone])
        for task in self.work.tasks:
            task.after = [t for t in task.after if t not in self.gone]

    def _ordered(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks as they were, but what reads an old value before what writes the new one."""
        result: dict[Task, None] = {}
        for task in tasks:
            waiting = [task]
            while waiting:
                needs = [n for n in self._needed(waiting[-1]) if n not in result]
                needs = [n for n in needs if n not in self.gone]
                if needs:
                    waiting += needs
                else:
                    result[waiting.pop()] = None
        return list(result)

    def _store(self, store: Pointwise) -> None:
        """Do without the copy of a changed argument to the argument, if that is what a task is."""
        argument = store.to.root
        source = store.operands[0]
        if store.name != "copy" or not isinstance(source, View):
            return
        if not (source.is_whole() and store.to.is_whole() and source.dtype == store.dtype):
            return
        if len(self.writers[argument]) != 1:
            return
        changes: list[_Change] = []
        value = source.root
        while value is not argument:
            change = self._change(value)
            if change is None:
                return
            changes.append(change)
            value = change.base
        edges: list[tuple[Task, list[Task]]] = []
        writers = {w for change in changes for w in change.writers}
        leaving = {store, *(c for change in changes for c in change.copies)}
        for change in changes:
            before = [
                reader
                for reader in self.readers.get(change.base, ())
                if reader not in leaving and reader not in change.writers
            ]
            if any(self._depends(reader, writers) for reader in before):
                return
            edges += [(writer, before) for writer in change.writers]
        for writer, before in edges:
            writer.after += before
        self.gone |= leaving
        self.writers[argument].remove(store)
        for change in changes:
            self.work.aliases[change.value] = argument
            self.writers[change.value] = list(change.writers)

    def _change(self, value: Value) -> _Change | None:
        """What a value replaces of another, if it is another one with a part replaced."""
        work = self.work
        writers = self.writers.get(value, [])
        if value in work.outputs or value in work.aliases or not writers:
            return None
        first = writers[0]
        if isinstance(first, Kernel):
            base = first.inputs[0] if first.inputs else None
            if len(writers) != 1 or first.symbol not in _STARTING_FROM or base is None:
                return None
            if not base.is_whole():
                return None
            if any(view.root is base.root for view in first.inputs[1:]):
                return None
            return _Change(value, base.root, writers, ())
        copies = [w for w in writers if self._keeps(w) is not None]
        bases = {self._keeps(w) for w in copies}
        rest = [w for w in writers if w not in copies]
        if len(bases) != 1 or not rest or any(t in writers for c in copies for t in c.after):
            return None
        (base_root,) = bases
        assert base_root is not None
        reading = [w for w in rest if any(view.root is base_root for view in w.reads)]
        if len(reading) > 1 or not all(_reads_where_it_writes(w, base_root) for w in reading):
            return None
        return _Change(value, base_root, rest, copies)

    def _keeps(self, task: Task) -> Value | None:
        """The value from which a task copies elements to where they are in it."""
        if not isinstance(task, Pointwise) or task.name != "copy":
            return None
        source = task.operands[0]
        if not isinstance(source, View) or source.dtype != task.dtype:
            return None
        if product(source.root.shape) != product(task.to.root.shape):
            return None
        same = source.offset == task.to.offset and same_strides(
            task.space, source.strides, task.to.strides
        )
        return source.root if same else None

    def _depends(self, task: Task, others: Collection[Task]) -> bool:
        """Whether a task can only run once one of the others has."""
        waiting, seen = [task], {task}
        while waiting:
            for need in self._needed(waiting.pop()):
                if need in others:
                    return True
                if need not in seen:
                    seen.add(need)
                    waiting.append(need)
        return False

    def _needed(self, task: Task) -> list[Task]:
        # An argument is read before it is stored: its writers come later.
        found = list(task.after)
        for view in task.reads:
            writers = self.writers.get(view.root, ())
            found += [w for w in writers if self.place[w] < self.place[task]]
        return found


def _reads_where_it_writes(task: Task, root: Value) -> bool:
    """Whether a task reads of some memory the elements that it writes, each for itself."""
    return isinstance(task, Pointwise) and all(
        view.offset == task.to.offset and same_strides(task.space, view.strides, task.to.strides)
        for view in task.reads
        if view.root is root
    )
