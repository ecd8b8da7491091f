"""Element-wise programs: instructions over a space of sizes, interpreted in blocks that stay in the
first cache.

A program needs no compiler: its row (see mojo_kernels/program.mojo) names functions of libraries
that are built once a machine, one function an operation and dtype.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache

from torch_max_backend.engines.steps.libraries import exported
from torch_max_backend.errors import LibraryError

# As in mojo_kernels/program.mojo.
_DIMS, _SCRATCH, _SLOTS, _UNIFORM, _ACCUMULATOR = 8, 65536, 256, 64, 16
_IN_PLACE, _SPREAD, _COPIED = range(3)
_THERE, _COPY, _SAME, _STRAIGHT, _EXPAND = range(5)

# Elements of a block of what has no instructions, and bytes of blocks of what has.
_PLAIN, _CACHE = 16384, 28672
# Elements of a block that only passes by, the most first, and how many of them there are at least.
_PASSING, _TILES = (65536, 32768, 16384), 32
# Cheap operations on elements that make a task, and the most parts of a reduction.
_GRAIN, _PARTS = 65536, 64


@dataclass(frozen=True)
class Instruction:
    """One operation on values.

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


@dataclass(frozen=True)
class Row:
    """A row of a table, without its pointers.

    Attributes:
        words: Its int64 words.
        inputs: The word of each input's pointer.
        outputs: The word of each output's pointer, then of each reduction's.
        fused: What can be compiled for it (see `fused_source`), and for rows of other sizes.
    """

    words: Sequence[int]
    inputs: Sequence[int]
    outputs: Sequence[int]
    fused: Program | None = None


# Operations: their name, then the dtypes of the result and of the operands.

Operation = tuple[str, ...]

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
_SIZES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal")
_OF_NUMBERS = ("negative", "abs", "add", "sub", "mul", "max", "min", *_COMPARISONS)
_OF_FLOATS = (
    *_OF_NUMBERS, "div", "relu", "floor", "ceil", "round", "trunc", "sqrt", "rsqrt", "is_nan",
    "is_inf", "sign_bit",
)  # fmt: skip
_OF_INTEGERS = (*_OF_NUMBERS, "relu", "and", "or", "xor", "not")
_OF_BOOLS = ("and", "or", "xor", "not", *_COMPARISONS, "max", "min")
_BASIC = frozenset((*_OF_FLOATS, *_OF_INTEGERS, "select", "cast"))
_TESTS = ("is_nan", "is_inf", "sign_bit")
_TWO = frozenset({"add", "sub", "mul", "div", "max", "min", "and", "or", "xor", *_COMPARISONS})
_MATH = {
    "exponentials": (
        "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sigmoid", "silu", "tanh",
        "gelu_tanh", "gelu_quick",
    ),
    "errors": ("erf", "erfc", "gelu"),
    "trigonometry": ("sin", "cos", "tan", "sinc"),
    "inverses": ("asin", "acos", "atan", "asinh", "acosh", "atanh", "sinh", "cosh"),
    "powers": ("pow", "atan2", "hypot", "copysign", "logaddexp", "logaddexp2", "mantissa"),
}  # fmt: skip
_MATH_OF_TWO = ("pow", "atan2", "hypot", "copysign", "logaddexp", "logaddexp2")
_FLOAT_DIVISIONS = ("floor_div", "mod", "fmod")
_DIVISIONS = ("floor_div", "mod", "pow", "left", "right", "gcd", "lcm")
_REDUCTIONS = ("sum", "prod", "max", "min")


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return _SIZES[dtype]


def dtypes_of(program: Program) -> list[str]:
    """The dtype of each value."""
    return [*program.inputs, *(i.dtype for i in program.instructions)]


def operation(dtypes: Sequence[str], instruction: Instruction) -> Operation:
    """The operation of an instruction on values of these dtypes."""
    return (instruction.name, instruction.dtype, *(dtypes[o] for o in instruction.operands))


@dataclass(frozen=True)
class _Library:
    """Operations that are built together.

    Attributes:
        name: Of the library.
        types: Of each operation a Mojo type that is one, of a reduction a function.
        modules: The modules of the kernels that have them.
        interprets: Whether the interpreter of programs is in it too.
    """

    name: str
    types: Mapping[Operation, str]
    modules: Sequence[str]
    interprets: bool = False

    def text(self) -> str:
        """The Mojo text of the library."""
        lines = [f"from kernels.{module} import {names}" for module, names in self._imports()]
        if self.interprets:
            lines.append(_INTERPRETER)
        for key, kind in self.types.items():
            if key[0].startswith("reduce_"):
                parameters, call = _REDUCTION_PARAMETERS, kind
            else:
                parameters, call = _PARAMETERS, f"each[{kind}]"
            arguments = ", ".join(p.split(":")[0] for p in parameters.split(", "))
            lines += [
                "", "",
                f'@export("{_symbol(key)}")',
                f'def {_symbol(key)}({parameters}) abi("C"):',
                f"    {call}({arguments})",
            ]  # fmt: skip
        return "\n".join([*lines, ""])

    def _imports(self) -> Iterable[tuple[str, str]]:
        yield "operations", "Basic, Bytes, each"
        for module in self.modules:
            if names := _NAMES.get(module):
                yield module, names

    def load(self) -> None:
        """Build and load it."""
        symbols = {_symbol(key): " ".join(key) for key in self.types}
        if self.interprets:
            symbols[_PROGRAM] = "the interpreter of programs"
        found = exported(f"programs_{self.name}", self.text(), symbols, self.modules)
        _functions.update((key, found[_symbol(key)]) for key in self.types)
        if self.interprets:
            _functions[_PROGRAM,] = found[_PROGRAM]


_PROGRAM = "tmb_program"
_INTERPRETER = f"""

@export("{_PROGRAM}")
def {_PROGRAM}(row: Words, context: Words) abi("C") -> Int64:
    run(row)
    return 0"""
_PARAMETERS = "to: Bytes, a: Bytes, b: Bytes, c: Bytes, n: Int64, steps: Int64"
_REDUCTION_PARAMETERS = "totals: Bytes, x: Bytes, rows: Int64, n: Int64, mode: Int64"
# What libraries import from the modules of the kernels.
_NAMES = {
    "operations_reduction": "reduce",
    "operations_math": "Exponent, Math",
    "operations_exact": "Exact",
    "program": "Words, run",
}


def _symbol(key: Operation) -> str:
    return "tmb_" + "_".join(key)


# The addresses of operations and reductions.
_functions: dict[Operation, int] = {}


@cache
def _libraries() -> Mapping[Operation, _Library]:
    """The library of each operation.

    What a library costs to build is hardly more than what an empty one does, so they are few.
    """
    common: dict[Operation, str] = {}
    for dtype in ("float32", "int64", "bool"):
        common |= _plain(dtype)
    common |= _functions_of("exponentials", "float32")
    modules = ("operations", "operations_math", "operations_reduction", "program")
    libraries = [_Library("common", common, modules, True)]
    for dtype in _SIZES:
        if dtype not in ("float32", "int64", "bool"):
            modules = ("operations", "operations_reduction")
            libraries.append(_Library(dtype, _plain(dtype), modules))
    for dtype in _FLOATS:
        types: dict[Operation, str] = {}
        for group in _MATH:
            if (group, dtype) != ("exponentials", "float32"):
                types |= _functions_of(group, dtype)
        types["exponent", "int32", dtype] = f"Exponent[DType.{dtype}]"
        libraries.append(_Library(f"math_{dtype}", types, ("operations", "operations_math")))
    for dtype in (*_INTEGERS, *_FLOATS):
        names = _DIVISIONS if dtype in _INTEGERS else _FLOAT_DIVISIONS
        if dtype in ("float32", "float64"):
            names += ("next",)
        types = {(n, dtype, dtype, dtype): f'Exact["{n}", DType.{dtype}]' for n in names}
        libraries.append(_Library(f"exact_{dtype}", types, ("operations", "operations_exact")))
    return {key: library for library in libraries for key in library.types}


def _plain(dtype: str) -> dict[Operation, str]:
    """The cheap operations of a dtype, and its reductions."""
    names: Sequence[str] = _OF_FLOATS if dtype in _FLOATS else _OF_INTEGERS
    keys = [_key(name, dtype) for name in (_OF_BOOLS if dtype == "bool" else names)]
    keys.append(("select", dtype, "bool", dtype, dtype))
    keys += [("cast", to, dtype) for to in _SIZES]
    types = {key: _basic(key) for key in keys}
    for kind in ("max", "min") if dtype == "bool" else _REDUCTIONS:
        types[f"reduce_{kind}", dtype] = f'reduce["{kind}", DType.{dtype}]'
    return types


def _functions_of(group: str, dtype: str) -> dict[Operation, str]:
    return {
        (
            name,
            dtype,
            *[dtype] * (2 if name in _MATH_OF_TWO else 1),
        ): f'Math["{name}", DType.{dtype}]'
        for name in _MATH[group]
    }


def _key(name: str, dtype: str) -> Operation:
    to = "bool" if name in _COMPARISONS or name in _TESTS else dtype
    return (name, to, *[dtype] * (2 if name in _TWO else 1))


def _basic(key: Operation) -> str:
    name, to, *operands = key
    operands += [operands[0]] * (3 - len(operands))
    return f'Basic["{name}", ' + ", ".join(f"DType.{d}" for d in (to, *operands)) + "]"


def _operations(program: Program) -> set[Operation]:
    dtypes = dtypes_of(program)
    found = {operation(dtypes, i) for i in program.instructions if i.name != "constant"}
    return found | {(f"reduce_{kind}", dtypes[value]) for kind, value in program.reductions}


def unsupported(program: Program) -> Collection[Operation]:
    """The operations of a program that no library has: names with the dtypes of the result and of
    the operands."""
    moved = {("copy", dtype) for dtype in dtypes_of(program) if dtype not in _SIZES}
    return sorted(moved | (_operations(program) - _libraries().keys()))


def prepare(programs: Iterable[Program]) -> None:
    """Build and load what programs need, so that `encode` can be called for them.

    Raises:
        LibraryError: An operation does not exist, or a library cannot be built.
    """
    needed = {(_PROGRAM,)}.union(*map(_operations, programs)) - _functions.keys()
    if not needed:
        return
    found = {(_PROGRAM,): _libraries()["add", "float32", "float32", "float32"], **_libraries()}
    if unknown := needed - found.keys():
        name, *dtypes = min(unknown)
        raise LibraryError(f"There is no operation {name} of {', '.join(dtypes)}.")
    libraries = {found[key].name: found[key] for key in sorted(needed)}
    with ThreadPoolExecutor(len(libraries)) as pool:
        for done in [pool.submit(library.load) for library in libraries.values()]:
            done.result()


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
    return _Encoding(program, sizes, input_strides, output_strides, apart).row()


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
        space = _Space(sizes, kept, input_strides, output_strides[:stored], output_strides[stored:])
        self.sizes, self.kept = space.sizes, space.kept
        self.inputs, self.outputs, self.totals = space.inputs, space.outputs, space.totals
        self.count = math.prod(self.sizes)
        self.offset = 0
        self.free: dict[int, list[int]] = {}
        self.slots: list[int] = []
        # Of each value its slot.
        self.slot: dict[int, int] = {}

    def row(self) -> Row:
        length = self._longest()
        while True:
            self.tiles, self.crossed = self._tiles(length)
            self._classify()
            self.offset, self.slots, self.slot, self.free = 0, [], {}, {}
            words = self._parts()
            if self.offset <= _SCRATCH and len(self.slots) <= _SLOTS:
                return words
            if length <= 64:
                raise ValueError("a program with too many values")
            length //= 2

    def _longest(self) -> int:
        """Elements of a block, so that what is live stays in the first cache."""
        if not self.program.instructions:
            return _PLAIN
        # What is read or written once only passes by.
        reads = Counter(o for i in self.program.instructions for o in i.operands)
        kept = [
            itemsize(self.dtypes[i])
            for i, strides in enumerate(self.inputs)
            if reads[i] > 1 or (any(strides) and not all(strides))
        ]
        base = len(self.inputs)
        results = [
            itemsize(instruction.dtype)
            for k, instruction in enumerate(self.program.instructions)
            if instruction.name != "constant" and reads[base + k]
        ]
        live = sum(kept) + sum(sorted(results)[-3:])
        if live == 0:
            # Nothing stays: a tile's own words are what the next one has to fetch again.
            return next((n for n in _PASSING if n * _TILES <= self.count), 8192)
        return next((n for n in (8192, 4096, 2048, 1024) if n * live <= _CACHE), 512)

    # Tiles

    def _tiles(self, length: int) -> tuple[list[int], bool]:
        """The sizes of tiles, and whether they cross rows that lie in another order."""
        sizes, last = self.sizes, len(self.sizes) - 1
        tiles = [1] * len(sizes)
        strided = self._across()
        if strided is not None:
            side = 64 if length == _PLAIN else 32
            tiles[strided] = min(sizes[strided], side)
            tiles[last] = _even(sizes[last], max(1, length // tiles[strided]), 16)
            tiles[strided] = _even(sizes[strided], max(1, length // tiles[last]), 16)
            return tiles, True
        count = 1
        for i in range(last, -1, -1):
            if i < last and count >= 256 and self._has_columns(i):
                break
            if count * sizes[i] <= length:
                tiles[i] = sizes[i]
                count *= max(1, sizes[i])
                continue
            tiles[i] = _even(sizes[i], max(1, length // count), 64 if i == last else 1)
            break
        return tiles, False

    def _has_columns(self, dim: int) -> bool:
        """Whether an input varies along a dim and not inside of it."""
        return any(s[dim] and not any(s[dim + 1 :]) for s in self.inputs)

    def _across(self) -> int | None:
        """A dim along which an operand lies in its order, if it does not along the last."""
        sizes, last = self.sizes, len(self.sizes) - 1
        if last < 1 or sizes[last] < 4:
            return None
        found = None
        for strides in [*self.inputs, *self.outputs]:
            if abs(strides[last]) <= 1:
                continue
            for i in range(last):
                if strides[i] == 1 and sizes[i] >= 4 and strides[last] * sizes[last] >= 64:
                    found = i
        return found

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
            dense = self._is_dense(strides)
            only_stored = i not in self.read
            if only_stored and not several_outputs and not self.same[i]:
                straight.add(i)
                loads.append((i, [0, -1, 0, itemsize(self.dtypes[i]), *strides]))
                continue
            if self.same[i]:
                mode, self.slot[i] = _SPREAD, self._block(i)
            elif dense and not (several_outputs and self._stored(i)):
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
        fusing = _Fusing(program, self.dtypes)
        for k, instruction in enumerate(program.instructions):
            value = inputs + k
            if value not in needed:
                continue
            if instruction.name == "constant":
                self.slot[value] = self._block(value)
                bits = _bits(instruction.constant, instruction.dtype)
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
            function = _functions[operation(self.dtypes, instruction)]
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
            function = _functions[f"reduce_{kind}", dtype]
            strides = [*self.totals[j], *[0] * (len(self.sizes) - self.kept)]
            totals.append([function, slot, 0, itemsize(dtype), 0, *strides])
        self.slot_of.update(self.slot)
        written = {*program.outputs, *(v for _, v in program.reductions)}
        fused = fusing.result([(v, self.slot_of[v]) for v in sorted(written & fusing.made)])
        self.fused, self.uniform = fused, len(uniform)
        return self._assembled(fills, loads, once, [*uniform, *steps], stores, totals)

    def _needed(self) -> set[int]:
        """The values that outputs depend on; ``read``: those that instructions among them read."""
        inputs = len(self.program.inputs)
        needed = {*self.program.outputs, *(v for _, v in self.program.reductions)}
        self.read = {v for _, v in self.program.reductions}
        for k in range(len(self.program.instructions) - 1, -1, -1):
            if inputs + k in needed:
                needed.update(self.program.instructions[k].operands)
                self.read.update(self.program.instructions[k].operands)
        return needed

    def _stored(self, value: int) -> bool:
        return value in self.program.outputs

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
            if self.program.instructions[k].name == "constant":
                continue
            if not self._is_dense(self.outputs[j]):
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
            _functions[_PROGRAM,], 0, dims, dims - self.kept, len(self.slots), len(fills),
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
        return Row(tuple(words), tuple(input_words), tuple(output_words), program)

    def _cost(self) -> int:
        """About how much work the program is, in elements of a cheap operation."""
        each = len(self.program.outputs) + len(self.program.reductions)
        for i, strides in enumerate(self.inputs):
            each += 0 if self.same[i] or self.once[i] else 1 if strides[-1] in (0, 1) else 3
        for instruction in self.program.instructions:
            if instruction.name != "constant":
                each += 1 if instruction.name in _BASIC else 8
        return each * self.count // 2


class _Fusing:
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


def fused_symbol(program: Program) -> str:
    """The name of the function that `fused_source` exports for what is `fused` of rows."""
    return "tmb_fused_" + hashlib.sha256(repr(program).encode()).hexdigest()[:24]


def fused_source(programs: Iterable[Program]) -> tuple[str, Sequence[str]]:
    """A Mojo text with a function for each program that is `fused` of a row, and the modules of the
    kernels that it imports.

    A function's address can be the first word of the rows, instead of the interpreter's: it runs
    all instructions of a tile at once, on vectors. See `fused_symbol` for its name.
    """
    programs = list(dict.fromkeys(programs))
    operations = sorted(set().union(*map(_operations, programs)))
    needed = {m for o in operations for m in _libraries()[o].modules if m in _NAMES}
    modules = ["operations", *sorted((needed | {"program"}) - {"operations_reduction"})]
    lines = [
        "from kernels.operations import Basic, constant, put, rounded, take, vector, wide",
        *(f"from kernels.{m} import {_NAMES[m]}" for m in modules if m in _NAMES),
        "from kernels.program import Block, block_of",
    ]
    for program in programs:
        lines += _fused_function(program)
    return "\n".join([*lines, ""]), modules


def _fused_function(program: Program) -> Iterable[str]:
    symbol, dtypes, inputs = fused_symbol(program), dtypes_of(program), len(program.inputs)
    yield from ("", "", f'def _{symbol}(row: Words, at: Words, n: Int64) abi("C"):')
    yield f"    comptime w = vector[{', '.join(f'DType.{d}' for d in sorted(set(dtypes)))}]()"
    yield "    var slots = row.unsafe_offset(Int(row[unsafe_offset=18]))"
    for i in range(inputs):
        yield f"    var p{i} = block_of(at, slots, {2 * i})"
        yield f"    var s{i} = Int(slots[unsafe_offset={2 * i + 1}])"
    for i in range(len(program.outputs)):
        yield f"    var q{i} = block_of(at, slots, {2 * inputs + i})"
    yield from ("    var count = Int(n)", "    var j = 0", "    while j < count:")
    yield "        var rest = count - j"
    for i, dtype in enumerate(program.inputs):
        yield f"        var v{i} = take[DType.{dtype}, w](p{i}, j * s{i}, rest)"
    for k, instruction in enumerate(program.instructions):
        name, dtype = f"v{inputs + k}", f"DType.{instruction.dtype}"
        if instruction.name == "constant":
            bits = _bits(instruction.constant, instruction.dtype)
            yield f"        var {name} = constant[{dtype}, w]({bits})"
            continue
        key = operation(dtypes, instruction)
        operands = list(instruction.operands)
        # What an operation of fewer operands is given besides, it ignores.
        made = [f"v{o}" for o in operands]
        made += [made[0]] * (3 - len(made))
        call = f"{_libraries()[key].types[key]}.of[w]({', '.join(made)})"
        yield f"        var {name} = rounded[{dtype}]({call})"
    for i, value in enumerate(program.outputs):
        yield f"        put[DType.{dtypes[value]}, w](q{i}, j, v{value}, rest)"
    yield "        j += w"
    yield from ("", "", f'@export("{symbol}")')
    yield f'def {symbol}(row: Words, context: Words) abi("C") -> Int64:'
    yield f"    var block: Block = _{symbol}"
    yield from ("    run(row, block)", "    return 0")


def _even(size: int, most: int, multiple: int) -> int:
    """How large parts of a size are, at most ``most``; a multiple if they are several."""
    if size <= most:
        return size
    part = -(-size // -(-size // most))
    return min(most, -(-part // multiple) * multiple)


class _Space:
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
                near += weight * (self._operands[o][i] == 1)
                near += 0.5 * (self._operands[o][i] == 0)
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


# How `struct` packs a number.
_PACKED = {
    "float32": "f", "float64": "d", "float16": "e", "int64": "q", "int32": "i", "int16": "h",
    "int8": "b", "uint8": "B", "bool": "?",
}  # fmt: skip


def _bits(value: float | int | bool | None, dtype: str) -> int:
    """A constant's bytes as an int64."""
    assert value is not None, "a constant has a value"
    number = int(value) if dtype in _INTEGERS else value
    try:
        packed = struct.pack("=" + _PACKED[dtype], number)
    except (KeyError, OverflowError, struct.error):
        # bfloat16, and what becomes infinite or wraps around.
        import torch

        made = torch.tensor([value], device="cpu").to(getattr(torch, dtype))
        packed = bytes(made.view(torch.uint8).tolist())
    return int.from_bytes(packed.ljust(8, b"\0"), "little", signed=True)
