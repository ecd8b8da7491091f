"""The operations of programs, and the libraries that have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from torch_max_backend.engines.steps.libraries import exported, provide
from torch_max_backend.engines.steps.programs import (
    INTEGERS,
    PAIRS,
    SIZES,
    UNSIGNED,
    Operation,
    Program,
    dtypes_of,
    operation,
)
from torch_max_backend.engines.steps.runner import RUN
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.engines.steps.texts import Text
from torch_max_backend.errors import LibraryError

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal")
_OF_NUMBERS = ("negative", "abs", "add", "sub", "mul", "max", "min", *_COMPARISONS)
_OF_FLOATS = (
    *_OF_NUMBERS, "div", "relu", "floor", "ceil", "round", "trunc", "sqrt", "rsqrt", "is_nan",
    "is_inf", "sign_bit",
)  # fmt: skip
_OFINTEGERS = (*_OF_NUMBERS, "relu", "and", "or", "xor", "not")
_OF_BOOLS = ("and", "or", "xor", "not", *_COMPARISONS, "max", "min")
CHEAP = frozenset((*_OF_FLOATS, *_OFINTEGERS, "select", "cast", "first", "second", "pair"))
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


@dataclass(frozen=True)
class Library:
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

    def text(self) -> Text:
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
        symbols = {_symbol(key): " ".join(key) for key in self.types}
        if self.interprets:
            symbols |= {PROGRAM: "the interpreter of programs", NOTHING: "nothing"}
        text = "\n".join([*lines, ""])
        return Text(f"programs_{self.name}", text, symbols, self.modules)

    def _imports(self) -> Iterable[tuple[str, str]]:
        yield OPERATIONS, "Basic, Bytes, each"
        for module in self.modules:
            if names := NAMES.get(module):
                yield module, names

    def load(self) -> None:
        """Build and load it."""
        found = exported(self.text())
        addresses.update((key, found[_symbol(key)]) for key in self.types)
        if self.interprets:
            addresses.update({(name,): found[name] for name in (PROGRAM, NOTHING)})


PROGRAM = "tmb_program"
# What runs a row that another one has taken over.
NOTHING = "tmb_nothing"
_INTERPRETER = f"""

@export("{PROGRAM}")
def {PROGRAM}(row: Words, context: Words) abi("C") -> Int64:
    run(row)
    return 0


@export("{NOTHING}")
def {NOTHING}(row: Words, context: Words) abi("C") -> Int64:
    return 0"""
_PARAMETERS = "to: Bytes, a: Bytes, b: Bytes, c: Bytes, n: Int64, steps: Int64"
_REDUCTION_PARAMETERS = "totals: Bytes, x: Bytes, rows: Int64, n: Int64, mode: Int64"
# Modules of the kernels, and what libraries import from them.
OPERATIONS = "programs.operations"
REDUCTIONS = "programs.reductions"
FUNCTIONS = "programs.functions"
EXACT = "programs.exact"
INTERPRETER = "programs.interpreter"
TABLE_ROW = "programs.table_row"
NAMES = {
    REDUCTIONS: "reduce",
    FUNCTIONS: "Exponent, Math",
    EXACT: "Exact",
    INTERPRETER: "run",
    TABLE_ROW: "Words",
}


def _symbol(key: Operation) -> str:
    return "tmb_" + "_".join(key)


# The addresses of operations and reductions.
addresses: dict[Operation, int] = {}


@cache
def libraries_by_operation() -> Mapping[Operation, Library]:
    """The library of each operation.

    What a library costs to build is hardly more than what an empty one does, so they are few.
    """
    common: dict[Operation, str] = {}
    for dtype in ("float32", "int64", "bool"):
        common |= _plain(dtype)
    common |= _functions_of("exponentials", "float32")
    modules: tuple[str, ...] = (OPERATIONS, FUNCTIONS, REDUCTIONS, INTERPRETER, TABLE_ROW)
    libraries = [Library("common", common, modules, True)]
    for dtype in SIZES:
        if dtype not in ("float32", "int64", "bool"):
            modules = (OPERATIONS, REDUCTIONS)
            libraries.append(Library(dtype, _plain(dtype), modules))
    for dtype in _FLOATS:
        types: dict[Operation, str] = {}
        for group in _MATH:
            if (group, dtype) != ("exponentials", "float32"):
                types |= _functions_of(group, dtype)
        types["exponent", "int32", dtype] = f"Exponent[DType.{dtype}]"
        libraries.append(Library(f"math_{dtype}", types, (OPERATIONS, FUNCTIONS)))
    for dtype in (*INTEGERS, *_FLOATS):
        names: tuple[str, ...] = _DIVISIONS if dtype in INTEGERS else _FLOAT_DIVISIONS
        if dtype in ("float32", "float64"):
            names += ("next",)
        types = {(n, dtype, dtype, dtype): f'Exact["{n}", DType.{dtype}]' for n in names}
        libraries.append(Library(f"exact_{dtype}", types, (OPERATIONS, EXACT)))
    return {key: library for library in libraries for key in library.types}


def common() -> Library:
    """The library that has the interpreter, and what most programs need."""
    return libraries_by_operation()["add", "float32", "float32", "float32"]


def _plain(dtype: str) -> dict[Operation, str]:
    """The cheap operations of a dtype, and its reductions."""
    names: Sequence[str] = _OF_FLOATS if dtype in _FLOATS else _OFINTEGERS
    keys = [_key(name, dtype) for name in (_OF_BOOLS if dtype == "bool" else names)]
    keys.append(("select", dtype, "bool", dtype, dtype))
    keys += [("cast", to, dtype) for to in SIZES if to not in UNSIGNED or dtype in UNSIGNED]
    if dtype in UNSIGNED:
        keys += [("cast", dtype, other) for other in SIZES if other not in UNSIGNED]
    if pair := PAIRS.get(dtype):
        keys += [("first", dtype, pair), ("second", dtype, pair), ("pair", pair, dtype, dtype)]
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


def operations_of(program: Program) -> set[Operation]:
    """The operations that a program calls, with their dtypes."""
    dtypes = dtypes_of(program)
    found = {operation(dtypes, i) for i in program.instructions if i.name != "constant"}
    return found | {(f"reduce_{kind}", dtypes[value]) for kind, value in program.reductions}


def unsupported(program: Program) -> Collection[Operation]:
    """The operations of a program that no library has: names with the dtypes of the result and of
    the operands."""
    moved = {("copy", dtype) for dtype in dtypes_of(program) if dtype not in SIZES}
    return sorted(moved | (operations_of(program) - libraries_by_operation().keys()))


def _missing(programs: Iterable[Program]) -> list[Library]:
    """The libraries that programs need and that are not loaded.

    Raises:
        LibraryError: An operation does not exist.
    """
    needed = {(PROGRAM,)}.union(*map(operations_of, programs)) - addresses.keys()
    if not needed:
        return []
    found = {(PROGRAM,): common(), **libraries_by_operation()}
    if unknown := needed - found.keys():
        name, *dtypes = min(unknown)
        raise LibraryError(f"There is no operation {name} of {', '.join(dtypes)}.")
    return [*{found[key].name: found[key] for key in sorted(needed)}.values()]


def prepare(programs: Iterable[Program], kernels: Sequence[Instance] = ()) -> None:
    """Build and load, together, all that tables of some programs and kernels call, so that
    `program_rows.encode` can be called for the programs.

    Raises:
        LibraryError: An operation or a kernel does not exist, or a library cannot be built.
    """
    wanted = _missing(programs)
    provide(kernels, [RUN, *(library.text() for library in wanted)])
    for library in wanted:
        library.load()
