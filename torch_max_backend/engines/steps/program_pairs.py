"""Neighbouring elements that a program reads or writes as one: the parts of complex numbers.

A tensor of pairs gives a program two operands whose elements lie two apart. As one operand, an
integer as wide as both, they mostly lie one after the other and need no copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_max_backend.engines.steps.programs import PAIRS, Instruction, Program


@dataclass(frozen=True)
class Operand:
    """Where an operand of a program lies.

    Attributes:
        memory: The number of its memory.
        offset: Of the first element, in elements.
        strides: In elements.
    """

    memory: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Paired:
    """A program, with pairs as operands where it has some.

    Attributes:
        program: It, the very one that was given if it has none.
        inputs: The number of each input, of a pair that of its first half.
        outputs: The same of the outputs.
        input_strides: Strides of the inputs, in elements of its own.
        output_strides: Strides of the outputs.
    """

    program: Program
    inputs: Sequence[int]
    outputs: Sequence[int]
    input_strides: Sequence[Sequence[int]]
    output_strides: Sequence[Sequence[int]]


def paired(program: Program, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> Paired:
    """The program with pairs where it reads or writes both halves of them; itself if it reduces.

    Args:
        program: A program.
        inputs: Where its inputs lie.
        outputs: Where its outputs lie, then its reductions.
    """
    plain = Paired(
        program,
        range(len(inputs)),
        range(len(outputs)),
        [o.strides for o in inputs],
        [o.strides for o in outputs],
    )
    if program.reductions:
        return plain
    dtypes = [*program.inputs, *(i.dtype for i in program.instructions)]
    read = _halves(inputs, program.inputs)
    written = _halves(outputs, [dtypes[v] for v in program.outputs])
    if not (read or written) or not _apart(inputs, outputs, read, written):
        return plain
    kept = [i for i in range(len(inputs)) if i not in read.values()]
    stored = [i for i in range(len(outputs)) if i not in written.values()]
    number: dict[int, int] = {}
    instructions: list[Instruction] = []

    def add(name: str, dtype: str, *operands: int) -> int:
        instructions.append(Instruction(name, dtype, operands))
        return len(kept) + len(instructions) - 1

    for at, i in enumerate(kept):
        if i in read:
            number[i] = add("first", dtypes[i], at)
            number[read[i]] = add("second", dtypes[i], at)
        else:
            number[i] = at
    for k, old in enumerate(program.instructions):
        operands = tuple(number[o] for o in old.operands)
        instructions.append(Instruction(old.name, old.dtype, operands, old.constant))
        number[len(inputs) + k] = len(kept) + len(instructions) - 1
    results = []
    for i in stored:
        value = program.outputs[i]
        result = number[value]
        if i in written:
            other = number[program.outputs[written[i]]]
            result = add("pair", PAIRS[dtypes[value]], result, other)
        results.append(result)
    types = tuple(PAIRS[dtypes[i]] if i in read else dtypes[i] for i in kept)
    return Paired(
        Program(types, tuple(instructions), tuple(results)),
        kept,
        stored,
        [_strides(inputs[i], i in read) for i in kept],
        [_strides(outputs[i], i in written) for i in stored],
    )


def _halves(operands: Sequence[Operand], dtypes: Sequence[str]) -> dict[int, int]:
    """The second halves of pairs by their first ones."""
    places = {o: i for i, o in enumerate(operands)}
    found: dict[int, int] = {}
    for i, (operand, dtype) in enumerate(zip(operands, dtypes, strict=True)):
        if dtype not in PAIRS or operand.offset % 2 or any(s % 2 for s in operand.strides):
            continue
        other = places.get(Operand(operand.memory, operand.offset + 1, operand.strides))
        if other is not None and any(operand.strides) and places[operand] == i:
            found[i] = other
    return found


def _apart(
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    read: dict[int, int],
    written: dict[int, int],
) -> bool:
    """Whether what is written and read are the same elements only where both are pairs, or none."""
    pairs = {*written, *written.values()}
    whole = {*read, *read.values()}
    return all(
        (i in whole) == (j in pairs)
        for i, a in enumerate(inputs)
        for j, b in enumerate(outputs)
        if a.memory == b.memory
    )


def _strides(operand: Operand, pair: bool) -> tuple[int, ...]:
    return tuple(s // 2 for s in operand.strides) if pair else operand.strides
