"""The dims of a program, fewest and in the best order."""

from __future__ import annotations

from collections.abc import Sequence

# As in mojo_kernels/programs/interpreter.mojo.
_DIMS = 8
# How well operands of a stride are copied line by line.
_NEARNESS = {0: 0.5, 1: 1.0, 2: 0.8}


class Space:
    """The dims of a program, fewest and in the best order.

    Args:
        sizes: Of the space.
        kept: How many of the dims are not reduced.
        inputs: Strides of the inputs.
        outputs: Strides of the outputs.
        totals: Strides of the reductions.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        kept: int,
        inputs: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        totals: Sequence[Sequence[int]],
    ) -> None:
        rest = [0] * (len(sizes) - kept)
        operands = [*inputs, *outputs, *([*t, *rest] for t in totals)]
        self._sizes, self._operands = sizes, operands
        self._outputs = range(len(inputs), len(inputs) + len(outputs))
        self._count = len(inputs) + len(outputs)
        front = self._ordered([i for i in range(kept) if sizes[i] != 1], not totals)
        back = self._ordered([i for i in range(kept, len(sizes)) if sizes[i] != 1], True)
        groups = self._merged(front), self._merged(back)
        self.sizes = [n for group in groups for n, _ in group] or [1]
        self.kept = len(groups[0]) if totals else len(self.sizes)
        strides = [s for group in groups for _, s in group] or [[0] * len(operands)]
        columns = [list(column) for column in zip(*strides, strict=True)]
        self.inputs = columns[: len(inputs)]
        self.outputs = columns[len(inputs) : self._count]
        self.totals = [t[: self.kept] for t in columns[self._count :]]
        if len(self.sizes) > _DIMS:
            raise ValueError(f"a program over {len(self.sizes)} dims")

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

    def _merged(self, dims: Sequence[int]) -> list[tuple[int, list[int]]]:
        groups: list[tuple[int, list[int]]] = []
        for i in dims:
            size, strides = self._sizes[i], [s[i] for s in self._operands]
            if groups and all(a == b * size for a, b in zip(groups[-1][1], strides, strict=True)):
                groups[-1] = (groups[-1][0] * size, strides)
            else:
                groups.append((size, strides))
        return groups
