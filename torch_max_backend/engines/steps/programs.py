"""Element-wise programs: instructions over a space of sizes, interpreted in blocks that stay in the
first cache.

A program needs no compiler: its row (`program_rows.py`, mojo_kernels/programs/table_row.mojo) names
functions of libraries that are built once a machine (`program_libraries.py`), one function an
operation and dtype.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_max_backend.engines.steps.rowwise import Rowwise


@dataclass(frozen=True, eq=False)
class Instruction:
    """One operation on values. Equal are those of the same text: a constant is NaN for itself, and
    -0.0 is not 0.0.

    Attributes:
        name: What it computes; ``constant`` has no operands.
        dtype: Of the result.
        operands: Numbers of values: those of the inputs first, then one for each instruction.
        constant: Of ``constant``.
    """

    name: str
    dtype: str
    operands: tuple[int, ...]
    constant: float | int | bool | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instruction) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[str, str, tuple[int, ...], str | None]:
        text = None if self.constant is None else repr(self.constant)
        return self.name, self.dtype, self.operands, text


@dataclass(frozen=True)
class Program:
    """Instructions over a space of sizes.

    Attributes:
        inputs: The dtype of each input.
        instructions: In an order in which they can run.
        outputs: The values that are stored.
        reductions: Of each reduction its kind (``sum``, ``prod``, ``max`` or ``min``) and its
            value.
    """

    inputs: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    reductions: tuple[tuple[str, int], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Programs are looked up for each table."""
        return hash((self.inputs, self.instructions, self.outputs, self.reductions))


@dataclass(frozen=True)
class Row:
    """A row of a table, without its pointers.

    Attributes:
        words: Its int64 words.
        inputs: The word of each input's pointer.
        outputs: The word of each output's pointer, then of each reduction's.
        fused: What can be compiled for it (see `fused_source.py`), and for rows of other sizes.
        tasks: Tasks at most.
        whole: Whether each row of what is reduced is in one tile.
    """

    words: Sequence[int]
    inputs: Sequence[int]
    outputs: Sequence[int]
    fused: Program | Rowwise | None = None
    tasks: int = 1
    whole: bool = True


# Operations: their name, then the dtypes of the result and of the operands.

Operation = tuple[str, ...]

# Bytes of integers that few graphs have: casts from and to them are in their libraries alone.
UNSIGNED = {"uint64": 8, "uint32": 4, "uint16": 2}
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", *UNSIGNED)
SIZES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, **UNSIGNED,
}  # fmt: skip


# What holds two neighbouring elements, which are moved together (see `program_pairs.py`).
PAIRS = {"float32": "uint64", "float16": "uint32", "bfloat16": "uint32"}


_BYTES = SIZES | {pair: 2 * SIZES[half] for half, pair in PAIRS.items()}


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return _BYTES[dtype]


def dtypes_of(program: Program) -> list[str]:
    """The dtype of each value."""
    return [*program.inputs, *(i.dtype for i in program.instructions)]


def held(program: Program) -> set[str]:
    """The dtypes of what is in registers: pairs are halves there."""
    paired = any(i.name in ("first", "second", "pair") for i in program.instructions)
    return set(dtypes_of(program)) - (set(PAIRS.values()) if paired else set())


def needed_values(program: Program) -> set[int]:
    """The values that outputs and reductions depend on."""
    inputs = len(program.inputs)
    found = {*program.outputs, *(v for _, v in program.reductions)}
    for k in range(len(program.instructions) - 1, -1, -1):
        if inputs + k in found:
            found.update(program.instructions[k].operands)
    return found


def operation(dtypes: Sequence[str], instruction: Instruction) -> Operation:
    """The operation of an instruction on values of these dtypes."""
    return (instruction.name, instruction.dtype, *(dtypes[o] for o in instruction.operands))


# How `struct` packs a number.
_PACKED = {
    "float32": "f", "float64": "d", "float16": "e", "int64": "q", "int32": "i", "int16": "h",
    "int8": "b", "uint8": "B", "bool": "?", "uint64": "Q", "uint32": "I", "uint16": "H",
}  # fmt: skip


def bits_of(value: float | int | bool | None, dtype: str) -> int:
    """A constant's bytes as an int64."""
    assert value is not None, "a constant has a value"
    number = int(value) if dtype in INTEGERS else value
    try:
        packed = struct.pack("=" + _PACKED[dtype], number)
    except (KeyError, OverflowError, struct.error):
        # bfloat16, and what becomes infinite or wraps around.
        import torch

        made = torch.tensor([value], device="cpu").to(getattr(torch, dtype))
        packed = bytes(made.view(torch.uint8).tolist())
    return int.from_bytes(packed.ljust(8, b"\0"), "little", signed=True)
