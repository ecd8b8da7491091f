"""The dims of a program, fewest and in the best order."""

from __future__ import annotations

from collections.abc import Sequence

# A size and the strides of all operands.
_Dim = tuple[int, list[int]]
# As in mojo_kernels/programs/interpreter.mojo.
_DIMS = 8
# Totals beside each other that tiles have, the least and the most.
_LEAST_ACROSS, _MOST_ACROSS = 16, 1024
# How well operands of a stride are copied line by line.
_NEARNESS = {0: 0.5, 1: 1.0, 2: 0.8}


def part_across(size: int) -> int | None:
    """Of a dim along which totals lie beside each other how many positions tiles have; ``None`` if
    it has no equal parts of such a size."""
    if size <= _MOST_ACROSS:
        return size if size >= _LEAST_ACROSS else None
    fitting = (size // n for n in range(2, size // _LEAST_ACROSS + 1) if size % n == 0)
    return next((part for part in fitting if part <= _MOST_ACROSS), None)


class Space:
    """The dims of a program, fewest and in the best order.

    Args:
        sizes: Of the space.
        kept: How many of the dims are not reduced.
        inputs: Strides of the inputs.
        outputs: Strides of the outputs.
        totals: Strides of the reductions.
        across: Whether what is reduced may lie between what is kept.

    Attributes:
        sizes: Of the dims: those that are kept, then those that are reduced.
        kept: How many are kept before those that are reduced.
        across: Whether one more dim, the last of all, is kept: neighbours lie along it.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        kept: int,
        inputs: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        totals: Sequence[Sequence[int]],
        across: bool = False,
    ) -> None:
        rest = [0] * (len(sizes) - kept)
        operands = [*inputs, *outputs, *([*t, *rest] for t in totals)]
        self._sizes, self._operands = sizes, operands
        self._outputs = range(len(inputs), len(inputs) + len(outputs))
        self._count = len(inputs) + len(outputs)
        front = self._ordered([i for i in range(kept) if sizes[i] != 1], not totals)
        back = self._ordered([i for i in range(kept, len(sizes)) if sizes[i] != 1], True)
        groups = self._merged(front), self._merged(back)
        dims = [dim for group in groups for dim in group]
        self.kept = len(groups[0]) if totals else len(dims) or 1
        inner = self._inner(*groups) if across and totals else []
        self.across = bool(inner)
        if inner:
            # The last one is counted apart.
            self.kept += len(inner) - 2
            dims = [*groups[0][:-1], *inner[:-1], *groups[1], inner[-1]]
        self.sizes = [n for n, _ in dims] or [1]
        strides = [s for _, s in dims] or [[0] * len(operands)]
        columns = [list(column) for column in zip(*strides, strict=True)]
        self.inputs = columns[: len(inputs)]
        self.outputs = columns[len(inputs) : self._count]
        last = [-1] if self.across else []
        self.totals = [[t[i] for i in (*range(self.kept), *last)] for t in columns[self._count :]]
        if len(self.sizes) > _DIMS:
            raise ValueError(f"a program over {len(self.sizes)} dims")

    def _inner(self, kept: Sequence[_Dim], reduced: Sequence[_Dim]) -> list[_Dim]:
        """The last kept dim, if neighbours lie along that one only: all of it, or its parts and a
        part."""
        if not kept or len(reduced) != 1:
            return []
        (size, near), (_, far) = kept[-1], reduced[0]
        shared = range(self._count)
        if not any(near[o] == 1 for o in shared) or any(abs(far[o]) == 1 for o in shared):
            return []
        part = part_across(size)
        if part is None:
            return []
        whole = [] if part == size else [(size // part, [s * part for s in near])]
        return [*whole, (part, near)]

    def _ordered(self, dims: list[int], inside: bool) -> list[int]:
        """The dims, outermost first, so that most operands lie in their order."""

        def distance(i: int) -> tuple[int, ...]:
            reach = [abs(self._operands[o][i]) for o in range(len(self._operands))]
            return (sum(reach[o] for o in self._outputs) or sum(reach), sum(reach))

        dims = sorted(dims, key=distance, reverse=True)
        if not inside or len(dims) < 2:
            return dims

        def score(i: int) -> tuple[float, int]:
            near = 0.0
            for o in range(self._count):
                weight = 1.5 if o in self._outputs else 1.0
                near += weight * _NEARNESS.get(self._operands[o][i], 0.0)
            return near * min(1.0, self._sizes[i] / 16), -dims.index(i)

        last = max(reversed(dims), key=score)
        return [*(i for i in dims if i != last), last]

    def _merged(self, dims: Sequence[int]) -> list[_Dim]:
        groups: list[_Dim] = []
        for i in dims:
            size, strides = self._sizes[i], [s[i] for s in self._operands]
            if groups and all(a == b * size for a, b in zip(groups[-1][1], strides, strict=True)):
                groups[-1] = (groups[-1][0] * size, strides)
            else:
                groups.append((size, strides))
        return groups
