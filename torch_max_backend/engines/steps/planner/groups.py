"""Tasks that run as one step, over sizes that may be seen in another order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch_max_backend.engines.steps.planner.sizes import Size, Sizes, product
from torch_max_backend.engines.steps.planner.tasks import Number, Reduce, Task
from torch_max_backend.engines.steps.planner.views import View


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


def is_all_of(view: View) -> bool:
    """Whether a view has each element of its root's memory once."""
    return product(view.shape) == product(view.root.shape) and not view.repeats()


def extent(view: View) -> frozenset[tuple[Size, Size]]:
    """Sizes and strides of a view's elements, in whatever order and shape it has them."""
    dims = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    known = [(s, n) for n, s in dims if isinstance(n, int) and isinstance(s, int)]
    if len(known) < len(dims):
        return frozenset(dims)
    joined: list[tuple[Size, Size]] = []
    for stride, size in sorted(known):
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = joined[-1][0] * size, joined[-1][1]
        else:
            joined.append((size, stride))
    return frozenset(joined)


def reshaped(
    group: Group, space: Sizes, here: View, there: View
) -> tuple[Sizes, dict[Task, list[View | Number]], dict[Task, View]] | None:
    """A group over other sizes, or ``None`` where its memory does not allow that.

    Args:
        group: The group.
        space: The sizes.
        here: Memory as the group has it.
        there: The same memory as the other group has it, over ``space``.
    """
    if group.reduces:
        return None
    order = _permutation(here, there, space)
    if order is not None:
        turn = [*order]

        def change(view: View) -> View | None:
            return view.transpose(turn)

    elif here.is_dense() and here.offset == there.offset:
        # Dense once its dims are in another order.
        back = _densest(there)
        if back is None:
            return None
        shape = tuple(space[i] for i in back)
        turn = [back.index(i) for i in range(len(back))]

        def change(view: View) -> View | None:
            made = view.reshape(shape)
            return None if made is None else made.transpose(turn)

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
        if to is None:
            return None
        reads[task], writes[task] = changed, to
    return space, reads, writes


def read_of(group: Group, view: View) -> View | None:
    """Memory as a group reads it now."""
    for reads in group.reads.values():
        for read in reads:
            if isinstance(read, View) and (read.root, read.offset) == (view.root, view.offset):
                return read
    return None


def _densest(view: View) -> list[int] | None:
    """The order of a view's dims in which it is dense, if there is one."""
    order = [*range(len(view.shape))]
    if not view.is_dense():
        strides = [s for s in view.strides if isinstance(s, int)]
        if len(strides) < len(order):
            return None
        order.sort(key=lambda i: strides[i], reverse=True)
    return order if view.transpose(order).is_dense() else None


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
