"""Programs as rows of a table: values, tiles, slots."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from torch_max_backend.engines.steps.fused_source import Fusing
from torch_max_backend.engines.steps.program_libraries import CHEAP, PROGRAM, addresses
from torch_max_backend.engines.steps.program_space import Space
from torch_max_backend.engines.steps.program_tiles import longest, tiles_of
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
_THERE, _COPY, _SAME, _STRAIGHT, _EXPAND = range(5)

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
    encoding = _Encoding(program, sizes, input_strides, output_strides, apart)
    return by_rows(encoding.row(), [program], encoding.space)


class _Encoding:
    """What a program's row is made from: values, tiles, slots."""

    def __init__(
        self,
        program: Program,
        sizes: Sequence[int],
        input_strides: Sequence[Sequence[int]],
        output_strides: Sequence[Sequence[int]],
        apart: bool,
    ) -> None:
        self.program = program
        self.apart = apart
        self.dtypes = dtypes_of(program)
        stored = len(program.outputs)
        kept = len(sizes)
        if program.reductions:
            kept = len(output_strides[stored])
        space = Space(sizes, kept, input_strides, output_strides[:stored], output_strides[stored:])
        self.space, self.sizes, self.kept = space, space.sizes, space.kept
        self.inputs, self.outputs, self.totals = space.inputs, space.outputs, space.totals
        self.count = math.prod(self.sizes)
        self.offset = 0
        self.free: dict[int, list[int]] = {}
        self.slots: list[int] = []
        # Of each value its slot.
        self.slot: dict[int, int] = {}

    def row(self) -> Row:
        length = longest(self.program, self.dtypes, self.inputs, self.count)
        while True:
            self.tiles, self.crossed = tiles_of(self.sizes, self.inputs, self.outputs, length)
            self._classify()
            self.offset, self.slots, self.slot, self.free = 0, [], {}, {}
            words = self._parts()
            if self.offset <= _SCRATCH and len(self.slots) <= _SLOTS:
                return words
            if length <= 64:
                raise ValueError("a program with too many values")
            length //= 2

    # Values

    def _classify(self) -> None:
        """Which values are the same all over a tile, and which in all tiles."""
        several = [i for i, n in enumerate(self.sizes) if self.tiles[i] < n]
        inside = [i for i, t in enumerate(self.tiles) if t > 1]
        self.same: list[bool] = []
        self.once: list[bool] = []
        for strides in self.inputs:
            same = all(strides[i] == 0 for i in inside)
            fixed = all(strides[i] == 0 for i in several)
            self.same.append(same)
            self.once.append(fixed and (same or (bool(several) and not self.crossed)))
        for instruction in self.program.instructions:
            self.same.append(all(self.same[o] for o in instruction.operands))
            self.once.append(all(self.once[o] for o in instruction.operands))
        self.used: dict[int, int] = {}
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

    def _parts(self) -> Row:
        program, inputs = self.program, len(self.program.inputs)
        self.length = math.prod(self.tiles)
        # Of each value its slot, whoever has that afterwards.
        self.slot_of: dict[int, int] = {}
        # Values whose slots others may have afterwards.
        self.lent: set[int] = set()
        needed = self._needed()
        fills: list[tuple[int, int, int]] = []
        loads: list[tuple[int, list[int]]] = []
        several_outputs = len(program.outputs) + len(program.reductions) > 1
        in_place: dict[int, Sequence[int]] = {}
        straight: set[int] = set()
        for i, strides in enumerate(self.inputs):
            if i not in needed:
                loads.append((i, [0, -1, 0, itemsize(self.dtypes[i]), *strides]))
                continue
            if i not in self.read and not several_outputs and not self.same[i]:
                straight.add(i)
                loads.append((i, [0, -1, 0, itemsize(self.dtypes[i]), *strides]))
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
            loads.append((i, [0, mode, self.slot[i], itemsize(self.dtypes[i]), *strides]))
        outputs: dict[int, list[int]] = {}
        direct = self._direct(in_place, needed)
        once: list[list[int]] = []
        # Of a tile: what is the same all over it, then the others.
        uniform: list[list[int]] = []
        steps: list[list[int]] = []
        fusing = Fusing(program, self.dtypes)
        for k, instruction in enumerate(program.instructions):
            value = inputs + k
            if value not in needed:
                continue
            if instruction.name == "constant":
                self.slot[value] = self._block(value)
                bits = bits_of(instruction.constant, instruction.dtype)
                fills.append((self.slot[value], bits, itemsize(instruction.dtype)))
                continue
            read = instruction.operands
            operands = [self.slot[o] for o in read]
            self.slot_of.update(self.slot)
            for o in set(instruction.operands):
                if self.used[o] == k and o in self.lent:
                    self._release(o)
            if value in direct:
                self.slot[value] = self._reference()
                outputs[direct[value]] = [0, _THERE, self.slot[value]]
            else:
                self.slot[value] = self._block(value)
                if not (self.same[value] or self.once[value]):
                    self.lent.add(value)
            flags = sum(1 << i for i, o in enumerate(instruction.operands) if not self.same[o])
            if self.same[value]:
                flags = 8 | 7
            function = addresses[operation(self.dtypes, instruction)]
            operands += [operands[0]] * (3 - len(operands))
            step = [function, self.slot[value], *operands, flags]
            if self.once[value]:
                once.append(step)
            elif self.same[value]:
                uniform.append(step)
            else:
                steps.append(step)
                fusing.add(value, [(o, self.slot_of[o], not self.same[o]) for o in read])
        stores: list[list[int]] = []
        for j, value in enumerate(program.outputs):
            strides = self.outputs[j]
            if j in outputs:
                entry = outputs[j]
            elif value in straight:
                entry = [0, _STRAIGHT, value]
            else:
                entry = [0, _SAME if self.same[value] else _COPY, self.slot[value]]
            stores.append([*entry, itemsize(self.dtypes[value]), *strides])
        expanded: dict[int, int] = {}
        totals: list[list[int]] = []
        for j, (kind, value) in enumerate(program.reductions):
            dtype = self.dtypes[value]
            slot = self.slot[value]
            if self.same[value]:
                if value not in expanded:
                    expanded[value] = self._new(itemsize(dtype) * self.length, True)
                    stores.append(
                        [expanded[value], _EXPAND, slot, itemsize(dtype), *[0] * len(self.sizes)]
                    )
                slot = expanded[value]
            function = addresses[f"reduce_{kind}", dtype]
            strides = [*self.totals[j], *[0] * (len(self.sizes) - self.kept)]
            totals.append([function, slot, 0, itemsize(dtype), 0, *strides])
        self.slot_of.update(self.slot)
        written = {*program.outputs, *(v for _, v in program.reductions)}
        fused = fusing.result([(v, self.slot_of[v]) for v in sorted(written & fusing.made)])
        self.fused, self.uniform = fused, len(uniform)
        return self._assembled(fills, loads, once, [*uniform, *steps], stores, totals)

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

    def _assembled(
        self,
        fills: Sequence[tuple[int, int, int]],
        loads: Sequence[tuple[int, list[int]]],
        once: Sequence[list[int]],
        steps: Sequence[list[int]],
        stores: Sequence[list[int]],
        totals: Sequence[list[int]],
    ) -> Row:
        dims = len(self.sizes)
        if self.count == 0:
            # Totals of nothing read nothing.
            loads = [(i, [0, -1, *load[2:]]) for i, load in loads]
            once = steps = []
            self.uniform, self.fused = 0, (None, [])
        grid = [-(-n // t) if n else 0 for n, t in zip(self.sizes, self.tiles, strict=True)]
        outer, inner = math.prod(grid[: self.kept]), math.prod(grid[self.kept :])
        # Each input is loaded once, or for each tile; only the first words of these are read.
        first = [load for load in loads if self.once[load[0]] and load[1][1] >= 0]
        later = [load for load in loads if not (self.once[load[0]] and load[1][1] >= 0)]
        order = [*first, *later]
        place = {i: n for n, (i, _) in enumerate(order)}
        for store in stores:
            if store[1] == _STRAIGHT:
                store[2] = place[store[2]]
        cost = self._cost()
        tasks = max(1, min(cost // _GRAIN, 1 << 20))
        splits = 1
        if totals and outer < 16 and outer * inner > 1:
            splits = max(1, min(inner, cost // _GRAIN // max(1, outer), _PARTS))
        scratch = self.offset
        if totals:
            rows = math.prod(self.tiles[: self.kept])
            self.offset += len(totals) * rows * _ACCUMULATOR
        head = [
            addresses[PROGRAM,], 0, dims, dims - self.kept, len(self.slots), len(fills),
            len(loads),
            len(first), len(once), len(steps), len(stores), len(totals), outer, inner, tasks,
            splits, self.length, scratch, 0, self.uniform,
        ]  # fmt: skip
        words = [*head, *self.sizes, *self.tiles, *self.slots]
        for fill in fills:
            words += fill
        input_words = [0] * len(loads)
        for number, load in order:
            input_words[number] = len(words)
            words += load
        for step in (*once, *steps):
            words += step
        output_words = []
        for store in stores:
            if store[1] != _EXPAND:
                output_words.append(len(words))
            words += store
        for total in totals:
            output_words.append(len(words) + 4)
            words += total
        program, slots = self.fused
        words[18] = len(words)
        words += slots
        words[1] = len(words)
        whole = inner == splits == 1
        return Row(tuple(words), tuple(input_words), tuple(output_words), program, tasks, whole)

    def _cost(self) -> int:
        """About how much work the program is, in elements of a cheap operation."""
        each = len(self.program.outputs) + len(self.program.reductions)
        for i, strides in enumerate(self.inputs):
            each += 0 if self.same[i] or self.once[i] else 1 if strides[-1] in (0, 1) else 3
        for instruction in self.program.instructions:
            if instruction.name != "constant":
                each += 1 if instruction.name in CHEAP else 8
        return each * self.count // 2
