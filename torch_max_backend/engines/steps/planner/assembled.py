"""Memory that copies put together and that only copies read: they read what it was made of.

Padding several dims, rolling several, a concatenation of concatenations: each pass over the memory
between them is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.sizes import Sizes, dense_strides
from torch_max_backend.engines.steps.planner.tasks import Lowered, Number, Pointwise, Task
from torch_max_backend.engines.steps.planner.views import View, kept

# A further step is worth it for so many elements that are not copied twice.
_LEAST = 4096
# Memory that is read more often than that is left: where a layout is slow to read, once is enough.
_MOST = 1.5


def read_through(work: Lowered, arguments: Collection[Value]) -> None:
    """Have copies of assembled memory read what it was assembled from, where that is known.

    Args:
        work: Its tasks are changed.
        arguments: The graph's. What is stored in one may be made of what was there before.
    """
    _Assembled(work, arguments).run()


class _Assembled:
    def __init__(self, work: Lowered, arguments: Collection[Value]) -> None:
        self.work = work
        self.arguments = arguments
        self.wanted = {*work.outputs, *arguments}
        self.writers: dict[Value, dict[Task, None]] = {}
        self.readers: dict[Value, dict[Task, None]] = {}
        # Where a task was, those that are there now; and those for which others wait now.
        self.instead: dict[Task, Collection[Task]] = {}
        self.waits: dict[Task, Collection[Task]] = {}
        for task in work.tasks:
            self._enter(task)

    def run(self) -> None:
        for value in list(self.writers):
            self._value(value)
        if not self.instead:
            return
        self.work.tasks = _replaced(self.work.tasks, self.instead)
        for task in self.work.tasks:
            task.after = list(dict.fromkeys(_replaced(task.after, self.waits)))

    def _enter(self, task: Task) -> None:
        for view in task.writes:
            self.writers.setdefault(view.root, {})[task] = None
        for view in task.reads:
            self.readers.setdefault(view.root, {})[task] = None

    def _value(self, value: Value) -> None:
        if value in self.wanted or len(self.writers[value]) < 2 or not self.readers.get(value):
            return
        writers = _parts(self.writers[value], value)
        if writers is None:
            return
        readers = [_use(task) for task in self.readers[value]]
        if None in readers:
            return
        uses = cast("list[_Use]", readers)
        if any(use.task.to.root in self.arguments for use in uses):
            return
        made = [
            (use.task, part.task, task)
            for use in uses
            for part in writers
            if (task := use.of(part)) is not None
        ]
        elements = prod(_known(value.shape) or ())
        if elements < _LEAST * max(1, len(made) - len(uses) - len(writers)):
            return
        if sum(use.elements for use in uses) > _MOST * elements:
            return
        self._replace(value, made)

    def _replace(self, value: Value, made: Sequence[tuple[Task, Task, Task]]) -> None:
        """Replace the tasks that read a value and those that write it.

        Args:
            value: What nothing writes or reads any more.
            made: Which task reads of what another writes, and what does both in their place.
        """
        gone = [*self.readers[value], *self.writers.pop(value)]
        for old in gone:
            for view in old.reads:
                self.readers[view.root].pop(old, None)
            for view in old.writes:
                self.writers.get(view.root, {}).pop(old, None)
            self.instead[old] = [task for use, _, task in made if use is old]
            self.waits[old] = [task for use, part, task in made if old in (use, part)]
        for _, _, task in made:
            self._enter(task)


def _replaced(tasks: Sequence[Task], instead: Mapping[Task, Collection[Task]]) -> list[Task]:
    found: list[Task] = []
    for task in tasks:
        found += _replaced([*instead[task]], instead) if task in instead else [task]
    return found


@dataclass
class _Box:
    """What a view shows of the memory that it lies on.

    Attributes:
        ranges: Of each dim of the memory the first position and the one behind the last.
        dims: Of each dim of the view the dim of the memory along which it goes, and whether
            forwards; ``None`` where it is broadcast.
    """

    ranges: list[tuple[int, int]]
    dims: list[tuple[int, bool] | None]


@dataclass
class _Part:
    """A copy that writes a part of some memory, in the order of its dims."""

    task: Pointwise
    box: _Box

    def strides(self) -> list[int]:
        """How far apart what it reads has neighbours along each dim of the memory."""
        found = [0] * len(self.box.ranges)
        source = self.task.operands[0]
        if isinstance(source, View):
            for stride, dim in zip(source.strides, self.box.dims, strict=True):
                assert dim is not None
                found[dim[0]] = cast("int", stride)
        return found


@dataclass
class _Use:
    """A copy that reads a part of some memory."""

    task: Pointwise
    box: _Box

    @property
    def elements(self) -> int:
        return prod(stop - start for start, stop in self.box.ranges)

    def of(self, part: _Part) -> Pointwise | None:
        """The copy of what it reads of one part, from where that part is from, if it does."""
        common = [
            (max(a, b), min(c, d))
            for (a, c), (b, d) in zip(self.box.ranges, part.box.ranges, strict=True)
        ]
        if any(start >= stop for start, stop in common):
            return None
        strides = part.strides()
        # The position of the first element, in the memory between, of what is read.
        first = [start for start, _ in common]
        space, steps, offset = [], [], cast("int", self.task.to.offset)
        for j, dim in enumerate(self.box.dims):
            size, step = cast("int", self.task.space[j]), 0
            if dim is not None:
                axis, forwards = dim
                (start, stop), (mine, end) = common[axis], self.box.ranges[axis]
                size, step = stop - start, strides[axis] if forwards else -strides[axis]
                skipped = start - mine if forwards else end - stop
                offset += skipped * cast("int", self.task.to.strides[j])
                first[axis] = start if forwards else stop - 1
            space.append(size)
            steps.append(step)
        to = View(self.task.to.root, tuple(space), self.task.to.strides, offset)
        source = part.task.operands[0]
        if isinstance(source, View):
            places = zip(first, part.box.ranges, strides, strict=True)
            distance = sum((at - begin) * stride for at, (begin, _), stride in places)
            begins = cast("int", source.offset) + distance
            source = View(source.root, tuple(space), tuple(steps), begins)
        return _copy(self.task, source, to)


def _copy(like: Pointwise, source: View | Number, to: View) -> Pointwise:
    keep = [i for i, size in enumerate(to.shape) if size != 1]
    reduced = kept(to, keep)
    operand = kept(source, keep) if isinstance(source, View) else source
    return Pointwise(
        "copy", [operand], reduced.shape, reduced, like.dtype, like.origin, [*like.after]
    )


def _parts(tasks: Iterable[Task], value: Value) -> list[_Part] | None:
    """The copies that write a value, if nothing else does and each element is written once."""
    parts = []
    for task in tasks:
        if not isinstance(task, Pointwise) or not _is_copy(task) or task.after:
            return None
        box = _box(task.to)
        if box is None or any(dim is None or not dim[1] for dim in box.dims):
            return None
        parts.append(_Part(task, box))
    shape = _known(value.shape)
    elements = sum(prod(stop - start for start, stop in p.box.ranges) for p in parts)
    return parts if shape is not None and elements == prod(shape) else None


def _use(task: Task) -> _Use | None:
    if not isinstance(task, Pointwise) or not _is_copy(task):
        return None
    box = _box(cast("View", task.operands[0]))
    known = _known((*task.to.strides, task.to.offset)) is not None
    return _Use(task, box) if box is not None and known else None


def _is_copy(task: Pointwise) -> bool:
    if task.name != "copy" or len(task.operands) != 1:
        return False
    (source,) = task.operands
    if source.dtype != task.dtype:
        return False
    numbers = (*source.shape, *source.strides, source.offset) if isinstance(source, View) else ()
    return _known((*numbers, *task.space)) is not None


def _box(view: View) -> _Box | None:
    """What a view shows of its memory, if that is a box of it."""
    shape = _known(view.root.shape)
    numbers = _known((*view.shape, *view.strides, view.offset))
    if shape is None or numbers is None or 0 in shape:
        return None
    rest = numbers[-1]
    axes, ranges = {}, []
    for axis, (size, step) in enumerate(zip(shape, dense_strides(shape), strict=True)):
        stride = cast("int", step)
        at, rest = divmod(rest, stride) if size != 1 else (0, rest)
        ranges.append((at, at + 1))
        if size != 1:
            axes[stride] = axis
    rank = len(view.shape)
    dims: list[tuple[int, bool] | None] = []
    for size, stride in zip(numbers[:rank], numbers[rank:-1], strict=True):
        if stride == 0:
            dims.append(None)
            continue
        axis_found = axes.pop(abs(stride), None)
        if axis_found is None:
            return None
        at = ranges[axis_found][0]
        ranges[axis_found] = (at, at + size) if stride > 0 else (at - size + 1, at + 1)
        dims.append((axis_found, stride > 0))
    inside = all(a >= 0 and b <= n for (a, b), n in zip(ranges, shape, strict=True))
    return _Box(ranges, dims) if inside else None


def _known(sizes: Sizes) -> tuple[int, ...] | None:
    """Sizes that are numbers."""
    found = tuple(n for n in sizes if isinstance(n, int))
    return found if len(found) == len(sizes) else None
