"""Programs as rows of a table: values, tiles, slots."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from torch_max_backend.engines.steps.fused_source import Fusible, Fusing
from torch_max_backend.engines.steps.program_libraries import CHEAP, PROGRAM, addresses
from torch_max_backend.engines.steps.program_space import Space
from torch_max_backend.engines.steps.program_tiles import longest, tiles_of
from torch_max_backend.engines.steps.program_words import (
    COPY,
    EXPAND,
    SAME,
    STRAIGHT,
    THERE,
    Words,
)
from torch_max_backend.engines.steps.programs import (
    Program,
    Row,
    bits_of,
    dtypes_of,
    itemsize,
    needed_values,
    operation,
)
from torch_max_backend.engines.steps.rowwise import by_rows

# As in mojo_kernels/programs/interpreter.mojo.
_SCRATCH, _SLOTS, _UNIFORM, _ACCUMULATOR = 65536, 256, 64, 16
_IN_PLACE, _SPREAD, _COPIED = range(3)

# Dtypes of sums that may lie beside each other, and what says so of a row.
_ACROSS, _ACROSS_WORD = ("float32", "float16", "bfloat16"), 256
# Cheap operations on elements that make a task, and the most parts of a reduction.
_GRAIN, _PARTS = 65536, 64


def encode(
    program: Program,
    sizes: Sequence[int],
    input_strides: Sequence[Sequence[int]],
    output_strides: Sequence[Sequence[int]],
    apart: bool = False,
) -> Row:
    """The row of a program for given sizes.

    Args:
        program: The program, which was prepared.
        sizes: Of the space, at most 8 dims.
        input_strides: Of each input, in elements, 0 where it is broadcast.
        output_strides: Of each output, then of each reduction; those lack the reduced dims, which
            are the last ones of the space.
        apart: Whether no output lies where an input does. Else it may be the very memory of one of
            the same strides.

    Raises:
        ValueError: The program is too large, or does not fit the strides.
    """
    inputs, outputs = (tuple(map(tuple, s)) for s in (input_strides, output_strides))
    return _encoded(program, tuple(sizes), inputs, outputs, apart)


@lru_cache(1024)
def _encoded(
    program: Program,
    sizes: Sequence[int],
    input_strides: Sequence[Sequence[int]],
    output_strides: Sequence[Sequence[int]],
    apart: bool,
) -> Row:
    """Layers of a model repeat."""
    stored = len(program.outputs)
    kept = len(output_strides[stored]) if program.reductions else len(sizes)
    dtypes = dtypes_of(program)
    across = all(kind == "sum" and dtypes[v] in _ACROSS for kind, v in program.reductions)
    space = Space(
        sizes, kept, input_strides, output_strides[:stored], output_strides[stored:], across
    )
    length = longest(program, dtypes, space)
    while True:
        encoding = _Encoding(program, space, apart, length)
        row = encoding.row()
        if encoding.offset <= _SCRATCH and len(encoding.slots) <= _SLOTS:
            return by_rows(row, [program], space, encoding.copies)
        if length <= 64:
            raise ValueError("a program with too many values")
        length //= 2


class _Encoding:
    """What a program's row is made from, with tiles of at most some elements.

    Attributes:
        same: Of each value whether it is the same all over a tile.
        once: Of each value whether it is the same in all tiles.
        used: Of each value the last instruction that reads it.
        slot: Of each value its slot.
        slot_of: Of each value its slot, whoever has that afterwards.
        lent: Values whose slots others may have afterwards.
        there: Of outputs that are computed where they lie, the slot.
        straight: Inputs that are copied to outputs.
        offset: Bytes of scratch memory.
        copies: Whether each tile has a copy of an input.
    """

    def __init__(self, program: Program, space: Space, apart: bool, length: int) -> None:
        self.program = program
        self.apart = apart
        self.dtypes = dtypes_of(program)
        self.sizes, self.kept = space.sizes, space.kept
        self.inputs, self.outputs, self.totals = space.inputs, space.outputs, space.totals
        self.count = math.prod(self.sizes)
        self.across = space.across
        self.tiles, self.crossed = tiles_of(
            self.sizes, self.inputs, self.outputs, length, self.kept if self.across else None
        )
        self.length = math.prod(self.tiles)
        self.same: list[bool] = []
        self.once: list[bool] = []
        self.used: dict[int, int] = {}
        self._classify()
        self.offset, self.copies = 0, False
        self.free: dict[int, list[int]] = {}
        self.slots: list[int] = []
        self.slot: dict[int, int] = {}
        self.slot_of: dict[int, int] = {}
        self.lent: set[int] = set()
        self.there: dict[int, int] = {}
        self.straight: set[int] = set()
        self.words = Words()
        self.fusing = Fusing(program, self.dtypes)

    # Values

    def _classify(self) -> None:
        """Which values are the same all over a tile, and which in all tiles."""
        several = [i for i, n in enumerate(self.sizes) if self.tiles[i] < n]
        inside = [i for i, t in enumerate(self.tiles) if t > 1]
        for strides in self.inputs:
            same = all(strides[i] == 0 for i in inside)
            fixed = all(strides[i] == 0 for i in several)
            self.same.append(same)
            self.once.append(fixed and (same or (bool(several) and not self.crossed)))
        for instruction in self.program.instructions:
            self.same.append(all(self.same[o] for o in instruction.operands))
            self.once.append(all(self.once[o] for o in instruction.operands))
        for i, instruction in enumerate(self.program.instructions):
            for o in instruction.operands:
                self.used[o] = i
        end = len(self.program.instructions)
        for value in (*self.program.outputs, *(v for _, v in self.program.reductions)):
            self.used[value] = end

    # Slots

    def _new(self, size: int, permanent: bool) -> int:
        if not permanent and self.free.get(size):
            return self.free[size].pop()
        self.slots.append(self.offset)
        self.offset += -(-size // 64) * 64
        return len(self.slots) - 1

    def _block(self, value: int) -> int:
        """A slot for a value."""
        size = itemsize(self.dtypes[value])
        if self.same[value]:
            return self._new(size * _UNIFORM, True)
        return self._new(size * self.length, self.once[value])

    def _release(self, value: int) -> None:
        """Let other values have the slot of one that is not needed any more."""
        slot = self.slot.pop(value)
        self.free.setdefault(itemsize(self.dtypes[value]) * self.length, []).append(slot)

    def _reference(self) -> int:
        """A slot whose address is written when it is known."""
        self.slots.append(0)
        return len(self.slots) - 1

    # The row

    def row(self) -> Row:
        needed = self._needed()
        in_place = self._load(needed)
        self._compute(needed, self._direct(in_place, needed))
        self._store()
        self._reduce()
        self.slot_of.update(self.slot)
        written = {*self.program.outputs, *(v for _, v in self.program.reductions)}
        made = sorted(written & self.fusing.made)
        return self._assembled(self.fusing.result([(v, self.slot_of[v]) for v in made]))

    def _load(self, needed: Collection[int]) -> dict[int, Sequence[int]]:
        """The words of inputs; returns the strides of those that are read in place."""
        program = self.program
        several_outputs = len(program.outputs) + len(program.reductions) > 1
        in_place: dict[int, Sequence[int]] = {}
        for i, strides in enumerate(self.inputs):
            copied = i not in self.read and not several_outputs and not self.same[i]
            if i not in needed or copied:
                if i in needed:
                    self.straight.add(i)
                self.words.loads.append((i, [0, -1, 0, itemsize(self.dtypes[i]), *strides]))
                continue
            if self.same[i]:
                mode, self.slot[i] = _SPREAD, self._block(i)
            elif self._is_dense(strides) and not (several_outputs and i in program.outputs):
                mode, self.slot[i] = _IN_PLACE, self._reference()
                if not self.once[i]:
                    in_place[i] = strides
            else:
                mode, self.slot[i] = _COPIED, self._block(i)
                if not self.once[i]:
                    self.lent.add(i)
                    self.copies = True
            load = [0, mode, self.slot[i], itemsize(self.dtypes[i]), *strides]
            self.words.loads.append((i, load))
        return in_place

    def _compute(self, needed: Collection[int], direct: Mapping[int, int]) -> None:
        """The words of instructions.

        Args:
            needed: The values that outputs depend on.
            direct: Of those that are computed where an output lies, the output.
        """
        program, words = self.program, self.words
        for k, instruction in enumerate(program.instructions):
            value = len(program.inputs) + k
            if value not in needed:
                continue
            if instruction.name == "constant":
                self.slot[value] = self._block(value)
                bits = bits_of(instruction.constant, instruction.dtype)
                words.fills.append((self.slot[value], bits, itemsize(instruction.dtype)))
                continue
            read = instruction.operands
            operands = [self.slot[o] for o in read]
            self.slot_of.update(self.slot)
            for o in set(read):
                if self.used[o] == k and o in self.lent:
                    self._release(o)
            if value in direct:
                self.slot[value] = self.there[direct[value]] = self._reference()
            else:
                self.slot[value] = self._block(value)
                if not (self.same[value] or self.once[value]):
                    self.lent.add(value)
            flags = sum(1 << i for i, o in enumerate(read) if not self.same[o])
            if self.same[value]:
                flags = 8 | 7
            function = addresses[operation(self.dtypes, instruction)]
            operands += [operands[0]] * (3 - len(operands))
            step = [function, self.slot[value], *operands, flags]
            if self.once[value]:
                words.once.append(step)
            elif self.same[value]:
                words.uniform.append(step)
            else:
                words.steps.append(step)
                self.fusing.add(value, [(o, self.slot_of[o], not self.same[o]) for o in read])

    def _store(self) -> None:
        """The words of outputs."""
        for j, value in enumerate(self.program.outputs):
            if j in self.there:
                entry = [0, THERE, self.there[j]]
            elif value in self.straight:
                entry = [0, STRAIGHT, value]
            else:
                entry = [0, SAME if self.same[value] else COPY, self.slot[value]]
            self.words.stores.append([*entry, itemsize(self.dtypes[value]), *self.outputs[j]])

    def _reduce(self) -> None:
        """The words of reductions."""
        expanded: dict[int, int] = {}
        for j, (kind, value) in enumerate(self.program.reductions):
            dtype, slot = self.dtypes[value], self.slot[value]
            if self.same[value]:
                if value not in expanded:
                    expanded[value] = self._new(itemsize(dtype) * self.length, True)
                    store = [expanded[value], EXPAND, slot, itemsize(dtype)]
                    self.words.stores.append([*store, *[0] * len(self.sizes)])
                slot = expanded[value]
            function = addresses[f"reduce_{kind}", dtype]
            behind = self.totals[j][self.kept :]
            between = [0] * (len(self.sizes) - self.kept - len(behind))
            strides = [*self.totals[j][: self.kept], *between, *behind]
            self.words.totals.append([function, slot, 0, itemsize(dtype), 0, *strides])

    def _needed(self) -> set[int]:
        """The values that outputs depend on; ``read``: those that instructions among them read."""
        found = needed_values(self.program)
        self.read = {v for _, v in self.program.reductions}
        for k, instruction in enumerate(self.program.instructions):
            if len(self.program.inputs) + k in found:
                self.read.update(instruction.operands)
        return found

    def _is_dense(self, strides: Sequence[int]) -> bool:
        """Whether the elements of each tile lie one after the other."""
        count = 1
        for i in range(len(self.tiles) - 1, -1, -1):
            if self.tiles[i] == 1:
                continue
            if strides[i] != count:
                return False
            # Parts of a dim are all of a tile, or not one after the other.
            count = count * self.tiles[i] if self.tiles[i] == self.sizes[i] else -1
        return True

    def _direct(
        self, in_place: Mapping[int, Sequence[int]], needed: Collection[int]
    ) -> dict[int, int]:
        """The values that are computed where an output lies, with its number."""
        inputs = len(self.program.inputs)
        found: dict[int, int] = {}
        # Inputs that are read at or after an instruction.
        last: dict[int, int] = {}
        for k, instruction in enumerate(self.program.instructions):
            if inputs + k in needed:
                for o in instruction.operands:
                    if o in in_place:
                        last[o] = k
        for o in in_place:
            if any(v == o for _, v in self.program.reductions):
                last[o] = len(self.program.instructions)
        for j, value in enumerate(self.program.outputs):
            k = value - inputs
            if k < 0 or value in found or self.same[value] or self.once[value]:
                continue
            constant = self.program.instructions[k].name == "constant"
            if constant or not self._is_dense(self.outputs[j]):
                continue
            size = itemsize(self.dtypes[value])
            if not self.apart and any(
                after > k
                and itemsize(self.dtypes[o]) == size
                and self._same_place(in_place[o], self.outputs[j])
                for o, after in last.items()
            ):
                continue
            found[value] = j
        return found

    def _same_place(self, a: Sequence[int], b: Sequence[int]) -> bool:
        return all(n == 1 or x == y for n, x, y in zip(self.sizes, a, b, strict=True))

    def _assembled(self, fused: tuple[Fusible | None, Sequence[int]]) -> Row:
        parts, dims = self.words, len(self.sizes)
        if self.count == 0:
            # Totals of nothing read nothing.
            parts.loads = [(i, [0, -1, *load[2:]]) for i, load in parts.loads]
            parts.once, parts.uniform, parts.steps = [], [], []
            fused = (None, [])
        grid = [-(-n // t) if n else 0 for n, t in zip(self.sizes, self.tiles, strict=True)]
        # Each tile of totals has one of what is reduced, be it of nothing.
        grid[self.kept :] = [max(1, n) for n in grid[self.kept :]]
        outer, inner = math.prod(grid[: self.kept]), math.prod(grid[self.kept :])
        # Each input is loaded once, or for each tile; only the first words of these are read.
        first = [i for i, load in parts.loads if self.once[i] and load[1] >= 0]
        order = [*first, *(i for i, _ in parts.loads if i not in first)]
        for store in parts.stores:
            if store[1] == STRAIGHT:
                store[2] = order.index(store[2])
        cost = self._cost()
        tasks = max(1, min(cost // _GRAIN, 1 << 20))
        splits = 1
        if parts.totals and outer < 16 and outer * inner > 1:
            splits = max(1, min(inner, cost // _GRAIN // max(1, outer), _PARTS))
        scratch = self.offset
        if parts.totals:
            rows = math.prod(self.tiles[: self.kept]) * (self.tiles[-1] if self.across else 1)
            self.offset += len(parts.totals) * rows * _ACCUMULATOR
        reduced = dims - self.kept
        if self.across:
            reduced += _ACROSS_WORD - 1
        head = [
            addresses[PROGRAM,], 0, dims, reduced, len(self.slots), len(parts.fills),
            len(order), len(first), len(parts.once), len(parts.uniform) + len(parts.steps),
            len(parts.stores), len(parts.totals), outer, inner, tasks, splits, self.length, scratch,
            0, len(parts.uniform), *self.sizes, *self.tiles, *self.slots,
        ]  # fmt: skip
        whole = inner == splits == 1 and not self.across
        return parts.row(head, order, fused, tasks, whole)

    def _cost(self) -> int:
        """About how much work the program is, in elements of a cheap operation."""
        each = len(self.program.outputs) + len(self.program.reductions)
        for i, strides in enumerate(self.inputs):
            each += 0 if self.same[i] or self.once[i] else 1 if strides[-1] in (0, 1) else 3
        for instruction in self.program.instructions:
            if instruction.name != "constant":
                each += 1 if instruction.name in CHEAP else 8
        return each * self.count // 2
