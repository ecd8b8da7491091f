"""Shells: what calls a kernel's ``execute`` with raw pointers, by C's calling convention.

A shell takes a row of a table and a context, both arrays of int64:

- row: the shell's address, how many words the row has, then what ``execute`` takes, in its order:
  of each tensor its address, sizes and strides, of each scalar the address of its memory;
- context: the address of a text buffer, its capacity, the length of the text written.

It returns 0, or 1 with the text of what was raised in the context. The text of a shell is
generated, so a kernel is written once, for MAX.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_max_backend.engines.steps.signatures import Argument, Signature, Unavailable, signature
from torch_max_backend.errors import LibraryError

# The folder of the kernels' package, which the shells import from.
PACKAGE = "kernels"
# The module of it that has what stands for MAX's tensors: with those a library takes a quarter to a
# half longer to compile.
STAND_IN = "core.stand_in"

_TYPES = {
    "output": "OutputTensor",
    "input": "InputTensor",
    "fused": "FusedInputTensor",
    "mutable": "MutableInputTensor",
}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_NAME = re.compile(r"[a-z]\w*")

_OWN = f"""\
from {PACKAGE}.core.memory import Address as Memory
from {PACKAGE}.{STAND_IN} import DeviceContext, Tensor
"""
_USERS = """\
from extensibility import InputTensor, OutputTensor
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility.managed_tensor_slice import StaticTensorSpec
from extensibility.managed_tensor_slice import _MutableInputTensor as MutableInputTensor
from max.gpu.host import DeviceContext

comptime Memory[dtype: DType] = Pointer[Scalar[dtype], MutAnyOrigin]
comptime Spec[dtype: DType, rank: Int] = StaticTensorSpec[dtype, rank].get_unknown()
"""
_HEAD = """\
from std.memory import Pointer
from std.utils.index import IndexList

comptime Row = Pointer[Int64, MutAnyOrigin]


@always_inline
def _at[dtype: DType](row: Row, word: Int) -> Memory[dtype]:
    var address = Int(row[unsafe_offset=word])
    return Pointer(to=address).unsafe_bitcast[Memory[dtype]]()[]


@always_inline
def _list[rank: Int](row: Row, word: Int) -> IndexList[rank]:
    var found = IndexList[rank](0)
    comptime for i in range(rank):
        found[i] = Int(row[unsafe_offset=word + i])
    return found


@no_inline
def _tell(text: String, context: Row) -> Int64:
    var bytes = text.as_bytes()
    var length = min(len(bytes), Int(context[unsafe_offset=1]))
    var buffer = _at[DType.uint8](context, 0)
    for i in range(length):
        buffer[unsafe_offset=i] = bytes[i]
    context[unsafe_offset=2] = Int64(length)
    return 1
"""


@dataclass(frozen=True)
class Instance:
    """A kernel for certain dtypes, ranks and compile-time parameters. Made by ``of``.

    Attributes:
        kernel: The name that it is registered with.
        operands: The dtype (as "float32") and the rank of what ``execute`` takes, in its order; a
            scalar has rank 0.
        parameters: The compile-time parameters, sorted by name.
        source: Where the kernel is written, a file or the folder of a Mojo package; "" for the
            kernels of this package.
    """

    kernel: str
    operands: tuple[tuple[str, int], ...]
    parameters: tuple[tuple[str, str | bool | int], ...] = ()
    source: str = ""

    @staticmethod
    def of(
        kernel: str,
        parameters: Mapping[str, str | bool | int] | Iterable[tuple[str, str | bool | int]],
        operands: Iterable[tuple[str, int]],
        source: Path | None = None,
    ) -> Instance:
        """A kernel, its compile-time parameters, and the dtype and rank of each operand."""
        given = tuple(sorted(dict(parameters).items()))
        listed = tuple((dtype, rank) for dtype, rank in operands)
        return Instance(kernel, listed, given, str(source or ""))

    @property
    def symbol(self) -> str:
        """The name that its shell is exported by."""
        parts = json.dumps([self.kernel, self.operands, self.parameters])
        digest = hashlib.sha256(parts.encode()).hexdigest()
        return f"{re.sub(r'[^A-Za-z0-9]', '_', self.kernel)}_{digest[:12]}"

    @property
    def words(self) -> int:
        """How many words its rows have."""
        return 2 + sum(1 + 2 * rank for _, rank in self.operands)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters)
        operands = ", ".join(f"{dtype} {rank}d" if rank else dtype for dtype, rank in self.operands)
        return f"{self.kernel}[{given}]({operands})"


def unavailable(wanted: Instance) -> str:
    """Why an instance cannot have a shell; "" if nothing is known to be in the way."""
    of = signature(wanted.kernel, Path(wanted.source) if wanted.source else None)
    return of.reason if isinstance(of, Unavailable) else _misfit(wanted, of)


def shells_text(instances: Sequence[Instance]) -> str:
    """The Mojo text of a library of shells.

    Args:
        instances: Those it exports, all of one package.

    Raises:
        LibraryError: One cannot have a shell.
    """
    of: dict[str, Signature] = {}
    for wanted in instances:
        found = signature(wanted.kernel, Path(wanted.source) if wanted.source else None)
        reason = found.reason if isinstance(found, Unavailable) else _misfit(wanted, found)
        if isinstance(found, Unavailable) or reason:
            raise LibraryError(f"The kernel {wanted} has no shell: {reason}.")
        of[wanted.kernel] = found
    structs = sorted({(s.module, s.struct) for i in instances for s in [of[i.kernel]]})
    names = {place: f"Kernel{k}" for k, place in enumerate(structs)}
    imports = [f"from {_module(m)} import {s} as {names[m, s]}" for m, s in structs]
    each = [
        _shell(i, of[i.kernel], names[of[i.kernel].module, of[i.kernel].struct]) for i in instances
    ]
    users = any(i.source for i in instances)
    return "\n\n".join(["\n".join(imports) + "\n" + (_USERS if users else _OWN) + _HEAD, *each])


def _module(module: str) -> str:
    return PACKAGE if module == "__init__" else f"{PACKAGE}.{module}"


def _misfit(wanted: Instance, of: Signature) -> str:
    """What of an instance contradicts the signature, "" if nothing does."""
    if any(a.kind == "list" for a in of.arguments):
        return "it takes any number of tensors"
    if len(wanted.operands) != len(of.arguments):
        return f"it takes {len(of.arguments)} operands, not {len(wanted.operands)}"
    types: dict[str, str] = {}
    ranks: dict[str, int] = {}
    for argument, (dtype, rank) in zip(of.arguments, wanted.operands, strict=True):
        if problem := _bind(argument, dtype, rank, types, ranks):
            return problem
    given = {name for name, _ in wanted.parameters}
    if unknown := given - {p.name for p in of.parameters}:
        return f"it has no parameter `{min(unknown)}`"
    if missing := {p.name for p in of.parameters if not p.optional} - given:
        return f"its parameter `{min(missing)}` is not given"
    return ""


def _bind(
    argument: Argument, dtype: str, rank: int, types: dict[str, str], ranks: dict[str, int]
) -> str:
    """Note what an operand says about names in the signature; what it contradicts, or ""."""
    name = argument.name
    if not _NAME.fullmatch(dtype) or rank < 0 or (argument.kind == "scalar" and rank):
        return f"`{name}` cannot be {dtype} of rank {rank}"
    due = argument.dtype.removeprefix("DType.")
    if due == argument.dtype:
        due = types.setdefault(due or f"{name}.dtype", dtype)
    if due != dtype:
        return f"`{name}` has to be {due}, not {dtype}"
    if argument.kind == "scalar":
        return ""
    types[f"{name}.dtype"] = dtype
    due_rank = argument.rank or f"{name}.rank"
    wanted = int(due_rank) if due_rank.isdigit() else ranks.setdefault(due_rank, rank)
    ranks[f"{name}.rank"] = rank
    return "" if wanted == rank else f"`{name}` has to have rank {wanted}, not {rank}"


def _shell(wanted: Instance, of: Signature, struct: str) -> str:
    """The Mojo text of a shell."""
    word, values = 2, {"": "Pointer(to=row).unsafe_bitcast[DeviceContext]()[]"}
    for argument, (dtype, rank) in zip(of.arguments, wanted.operands, strict=True):
        values[argument.name] = _value(argument, dtype, rank, word, own=not wanted.source)
        word += 1 + 2 * rank
    declared = {p.name: p.type for p in of.parameters}
    given = [f"{name}={_literal(value, declared[name])}" for name, value in wanted.parameters]
    chosen = ", ".join([*given, 'target="cpu"'])
    lines = [f"{struct}.execute[{chosen}](", *(f"    {values[name]}," for name in of.calls), ")"]
    if of.raises:
        lines = ["try:", *(f"    {line}" for line in lines)]
        lines += ["except e:", "    return _tell(String(e), context)"]
    wrong = f"A row of {wanted.kernel} has {word} words"
    head = [
        f"# {wanted}".replace("\n", " "),
        f'@export("{wanted.symbol}")',
        f'def {wanted.symbol}(row: Row, context: Row) abi("C") -> Int64:',
        f"    if row[unsafe_offset=1] != {word}:",
        f"        return _tell({_literal(wrong, 'StaticString')}, context)",
    ]
    return "\n".join([*head, *(f"    {line}" for line in lines), "    return 0\n"])


def _value(argument: Argument, dtype: str, rank: int, word: int, *, own: bool) -> str:
    """What an argument is in the call, if its words begin at a word of the row."""
    memory = f"_at[DType.{dtype}](row, {word})"
    if argument.kind == "scalar":
        return f"Bool({memory}[])" if argument.dtype == "DType.bool" else f"{memory}[]"
    sizes, strides = f"_list[{rank}](row, {word + 1})", f"_list[{rank}](row, {word + 1 + rank})"
    if own:
        made = f"Tensor[DType.{dtype}, {rank}]"
    else:
        made = f"{_TYPES[argument.kind]}[static_spec=Spec[DType.{dtype}, {rank}]]"
    return f"{made}({memory}, {sizes}, {strides})"


def _literal(value: str | bool | int, type: str) -> str:
    """A value of a compile-time parameter as Mojo writes it."""
    if type == "DType":
        return f"DType.{value}"
    if type == "Bool":
        return str(bool(value))
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'
    return str(int(value))
