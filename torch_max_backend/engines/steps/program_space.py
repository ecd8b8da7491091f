"""The dims of a program, fewest and in the best order."""

from __future__ import annotations

from collections.abc import Sequence

# A size and the strides of all operands.
_Dim = tuple[int, list[int]]
# As in mojo_kernels/programs/interpreter.mojo.
_DIMS = 8
# Totals beside each other that a program adds up, and from how many on functions of whole rows (see
# `rowwise.py`) and a kernel for the sums are faster.
_LEAST_ACROSS, _WIDE = 16, 256
# Elements of the rows that are added up: a tile has none of other rows.
_WORTH = 2048
# How well operands of a stride are copied line by line.
_NEARNESS = {0: 0.5, 1: 1.0, 2: 0.8}


def adds_across(columns: int, rows: int) -> bool:
    """Whether a program adds up rows of totals that lie beside each other itself.

    Args:
        columns: How many totals.
        rows: How many are added up to them.
    """
    return _LEAST_ACROSS <= columns < _WIDE and columns * rows >= _WORTH


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
        self.across = across and bool(totals) and self._lies_across(*groups)
        if self.across:
            # The last one is counted apart.
            self.kept -= 1
            dims = [*groups[0][:-1], *groups[1], groups[0][-1]]
        self.sizes = [n for n, _ in dims] or [1]
        strides = [s for _, s in dims] or [[0] * len(operands)]
        columns = [list(column) for column in zip(*strides, strict=True)]
        self.inputs = columns[: len(inputs)]
        self.outputs = columns[len(inputs) : self._count]
        last = [-1] if self.across else []
        self.totals = [[t[i] for i in (*range(self.kept), *last)] for t in columns[self._count :]]
        if len(self.sizes) > _DIMS:
            raise ValueError(f"a program over {len(self.sizes)} dims")

    def _lies_across(self, kept: Sequence[_Dim], reduced: Sequence[_Dim]) -> bool:
        """Whether neighbours lie along the last dim that is kept only."""
        if not kept or len(reduced) != 1 or not adds_across(kept[-1][0], reduced[0][0]):
            return False
        near, far = kept[-1][1], reduced[0][1]
        shared = range(self._count)
        turned = any(abs(far[o]) == 1 and near[o] != 0 for o in shared)
        return not turned and any(near[o] == 1 for o in shared)

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
            return near * min(1.0, self._sizes[i] / 8), -dims.index(i)

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
