"""Programs as Mojo functions: of whole rows, or that run all instructions of a tile at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from torch_max_backend.engines.steps import rowwise_source
from torch_max_backend.engines.steps.program_libraries import (
    INTERPRETER,
    NAMES,
    OPERATIONS,
    REDUCTIONS,
    TABLE_ROW,
    libraries_by_operation,
    operations_of,
)
from torch_max_backend.engines.steps.program_text import assignment
from torch_max_backend.engines.steps.programs import (
    Instruction,
    Program,
    dtypes_of,
    held,
)
from torch_max_backend.engines.steps.rowwise import Rowwise
from torch_max_backend.engines.steps.texts import Text

# What becomes a function.
Fusible = Program | Rowwise


class Fusing:
    """The instructions of a tile as a program of its own: what is computed before are inputs.

    Args:
        program: The program.
        dtypes: Of its values.
    """

    def __init__(self, program: Program, dtypes: Sequence[str]) -> None:
        self.program, self.dtypes = program, dtypes
        self.inputs: dict[int, tuple[int, bool]] = {}
        self.constants: list[int] = []
        self.made: set[int] = set()
        self.steps: list[int] = []

    def add(self, value: int, operands: Iterable[tuple[int, int, bool]]) -> None:
        """Add the instruction of a value; its operands with their slots, and whether they vary."""
        self.steps.append(value)
        self.made.add(value)
        for operand, slot, varies in operands:
            k = operand - len(self.program.inputs)
            if operand in self.made or operand in self.constants:
                continue
            if k >= 0 and self.program.instructions[k].name == "constant":
                self.constants.append(operand)
            else:
                self.inputs.setdefault(operand, (slot, varies))

    def result(self, outputs: Sequence[tuple[int, int]]) -> tuple[Program | None, list[int]]:
        """The program, and for each input its slot and whether it varies, for each output its
        slot."""
        if not self.steps:
            return None, []
        number = {v: i for i, v in enumerate([*self.inputs, *self.constants, *self.steps])}
        instructions = []
        for value in (*self.constants, *self.steps):
            old = self.program.instructions[value - len(self.program.inputs)]
            operands = tuple(number[o] for o in old.operands)
            instructions.append(Instruction(old.name, old.dtype, operands, old.constant))
        made = Program(
            tuple(self.dtypes[v] for v in self.inputs),
            tuple(instructions),
            tuple(number[v] for v, _ in outputs),
        )
        words = [w for slot, varies in self.inputs.values() for w in (slot, int(varies))]
        return made, [*words, *(slot for _, slot in outputs)]


def fused_symbol(program: Fusible) -> str:
    """The name of the function that `fused_source` exports for what is `fused` of rows."""
    if isinstance(program, Rowwise):
        return rowwise_source.symbol(program)
    return "tmb_fused_" + hashlib.sha256(repr(program).encode()).hexdigest()[:24]


def fused_text(programs: Iterable[Fusible]) -> Text:
    """A Mojo text with a function for each program that is `fused` of a row.

    A function's address can be the first word of the rows, instead of the interpreter's. See
    `fused_symbol` for its name.
    """
    programs = list(dict.fromkeys(programs))
    parts = [q for p in programs for q in _programs(p)]
    operations = sorted(set().union(*map(operations_of, parts)))
    needed = {m for o in operations for m in libraries_by_operation()[o].modules if m in NAMES}
    modules = [OPERATIONS, *sorted((needed | {INTERPRETER, TABLE_ROW}) - {REDUCTIONS})]
    lines = [
        f"from kernels.{OPERATIONS} import Basic, constant, put, rounded, take, vector, wide",
        *(f"from kernels.{m} import {NAMES[m]}" for m in modules if m in NAMES),
        f"from kernels.{INTERPRETER} import Block, block_of",
    ]
    if any(isinstance(p, Rowwise) for p in programs):
        lines += rowwise_source.IMPORTS
        modules += rowwise_source.MODULES
    for program in programs:
        if isinstance(program, Rowwise):
            lines += rowwise_source.function(program)
        else:
            lines += _fused_function(program)
    symbols = {fused_symbol(p): f"{len(p.instructions)} instructions" for p in programs}
    return Text("fused", "\n".join([*lines, ""]), symbols, modules)


def _programs(fusible: Fusible) -> Sequence[Program]:
    if isinstance(fusible, Rowwise):
        return [phase.program for phase in fusible.phases]
    return [fusible]


def _fused_function(program: Program) -> Iterable[str]:
    symbol, inputs = fused_symbol(program), len(program.inputs)
    yield from ("", "", f'def _{symbol}(row: Words, at: Words, n: Int64) abi("C"):')
    yield f"    comptime w = vector[{', '.join(f'DType.{d}' for d in sorted(held(program)))}]()"
    yield "    var slots = row.unsafe_offset(Int(row[unsafe_offset=18]))"
    for i in range(inputs):
        yield f"    var p{i} = block_of(at, slots, {2 * i})"
        yield f"    var s{i} = Int(slots[unsafe_offset={2 * i + 1}])"
    for i in range(len(program.outputs)):
        yield f"    var q{i} = block_of(at, slots, {2 * inputs + i})"
    yield from ("    var count = Int(n)", "    var j = 0", "    while j + w <= count:")
    yield from (f"        {line}" for line in _vector(program, "w"))
    yield from ("        j += w", "    if j < count:")
    yield from (f"        {line}" for line in _vector(program, "count - j"))
    yield from ("", "", f'@export("{symbol}")')
    yield f'def {symbol}(row: Words, context: Words) abi("C") -> Int64:'
    yield f"    var block: Block = _{symbol}"
    yield from ("    run(row, block)", "    return 0")


def _vector(program: Program, rest: str) -> Iterable[str]:
    """All instructions on a vector of a tile, of which there is a rest."""
    dtypes, inputs = dtypes_of(program), len(program.inputs)
    for i, dtype in enumerate(program.inputs):
        yield f"var v{i} = take[DType.{dtype}, w](p{i}, j * s{i}, {rest})"
    for k, instruction in enumerate(program.instructions):
        operands = [f"v{o}" for o in instruction.operands]
        yield assignment(f"v{inputs + k}", instruction, operands, dtypes)
    for i, value in enumerate(program.outputs):
        yield f"put[DType.{dtypes[value]}, w](q{i}, j, v{value}, {rest})"
