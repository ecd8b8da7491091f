"""The signatures of kernels: what their ``execute`` takes, read from the Mojo source.

A kernel is a struct with ``@register("name")`` and a static method ``execute``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch_max_backend.registry.kernel_sources import kernel_sources

# Kinds of tensors by the types of arguments.
_TENSORS = {
    "OutputTensor": "output",
    "InputTensor": "input",
    "FusedInputTensor": "fused",
    "_FusedInputTensor": "fused",
    "MutableInputTensor": "mutable",
    "_MutableInputTensor": "mutable",
    "FusedInputVariadicTensors": "list",
    "_FusedInputVariadicTensors": "list",
}
_SCALARS = {
    "Bool": "bool",
    **{f"Int{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "Float16": "float16",
    "BFloat16": "bfloat16",
    "Float32": "float32",
    "Float64": "float64",
}  # fmt: skip
_PARAMETERS = ("StaticString", "String", "StringLiteral", "Bool", "Int", "DType")
_CLOSES = {"[": "]", "(": ")", "{": "}"}

_REGISTERED = re.compile(
    r'^@(?:\w+\.)?register\(\s*"([^"]+)"\s*\)\s*\nstruct\s+(\w+)', re.MULTILINE
)
_NEXT_STRUCT = re.compile(r"^(?:@|struct\s)", re.MULTILINE)
_EXECUTE = re.compile(r"^\s+def\s+execute\s*(?=[\[(])", re.MULTILINE)
_ARGUMENT = re.compile(r"(?:(?:mut|var|imm|read|ref|owned)\s+)?(\*?\w+)\s*:\s*(.+)", re.DOTALL)
_TYPE = re.compile(r"(\w+)\s*(?:\[(.*)\])?", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """A compile-time parameter that a call has to give.

    Attributes:
        name: Its name.
        type: Its type in Mojo.
        optional: Whether it has a default.
    """

    name: str
    type: str
    optional: bool


@dataclass(frozen=True)
class Argument:
    """An argument of ``execute``.

    Attributes:
        name: Its name.
        kind: "output", "input", "fused", "mutable" (tensors), "list" (any number of tensors of one
            dtype and rank) or "scalar".
        dtype: Its dtype as the signature says it: "DType.int64", the name of a parameter,
            "x.dtype" of another argument, or "" for any.
        rank: Of a tensor, likewise: "3", "rank", "x.rank" or "".
    """

    name: str
    kind: str
    dtype: str
    rank: str


@dataclass(frozen=True)
class Signature:
    """What the ``execute`` of a kernel takes.

    Attributes:
        kernel: The name that the kernel is registered with.
        struct: The name of its struct.
        module: The module of the struct in its package, as "gemm" or "folder.file".
        parameters: Those that a call has to give, in order, without ``target``.
        inferred: The names of those that follow from the arguments.
        arguments: In order, without the ``DeviceContext``.
        calls: What stands for each argument in a call, in order: its name, or "" for the
            ``DeviceContext``.
        raises: Whether it may raise.
    """

    kernel: str
    struct: str
    module: str
    parameters: tuple[Parameter, ...]
    inferred: tuple[str, ...]
    arguments: tuple[Argument, ...]
    calls: tuple[str, ...]
    raises: bool


@dataclass(frozen=True)
class Unavailable:
    """A kernel without a shell.

    Attributes:
        kernel: The name that it is registered with.
        module: Its module.
        reason: Why.
    """

    kernel: str
    module: str
    reason: str


class _NotUnderstood(Exception):
    """A part of a signature that has no place in a shell."""


def signature(kernel: str, source: Path | None = None) -> Signature | Unavailable:
    """What a kernel takes, or why it has no shell.

    Args:
        kernel: The name that it is registered with.
        source: Where it is written: a file, or the folder of a Mojo package; by default among the
            kernels of this package.
    """
    place = kernels(source).get(kernel)
    if place is None:
        return Unavailable(kernel, "", f"there is no kernel {kernel!r}")
    return _of_file(*place)[kernel] if source is None else dict(_read(*place))[kernel]


def kernels(source: Path | None = None) -> Mapping[str, tuple[Path, str]]:
    """The file and the module of each kernel of Mojo sources, by name.

    Args:
        source: As for ``signature``.
    """
    return _own_kernels() if source is None else _kernels(source)


@cache
def _own_kernels() -> Mapping[str, tuple[Path, str]]:
    return _kernels(kernel_sources())


def _kernels(source: Path) -> Mapping[str, tuple[Path, str]]:
    root = source if source.is_dir() else source.parent
    found = {}
    for path in sorted(root.rglob("*.mojo")) if source.is_dir() else [source]:
        names = path.relative_to(root).with_suffix("").parts
        module = ".".join(n for n in names if n != "__init__") or "__init__"
        for match in _REGISTERED.finditer(path.read_text()):
            found[match[1]] = path, module
    return found


@cache
def _of_file(path: Path, module: str) -> Mapping[str, Signature | Unavailable]:
    return dict(_read(path, module))


def _read(path: Path, module: str) -> Iterator[tuple[str, Signature | Unavailable]]:
    return ((s.kernel, s) for s in parse(path.read_text(), module))


def parse(text: str, module: str) -> Iterator[Signature | Unavailable]:
    """The kernels in the text of a Mojo module, in order."""
    for match in _REGISTERED.finditer(text):
        kernel, struct = match.groups()
        end = _NEXT_STRUCT.search(text, match.end())
        body = text[match.end() : end.start() if end else len(text)]
        try:
            yield _signature(kernel, struct, module, body)
        except _NotUnderstood as e:
            yield Unavailable(kernel, module, str(e))


def _signature(kernel: str, struct: str, module: str, body: str) -> Signature:
    start = _EXECUTE.search(body)
    if start is None:
        raise _NotUnderstood("it has no method `execute`")
    inside, at = "", start.end()
    if body[at] == "[":
        inside, at = _bracketed(body, at)
        at += len(body[at:]) - len(body[at:].lstrip())
    if body[at : at + 1] != "(":
        raise _NotUnderstood("its `execute` has no list of arguments")
    listed, at = _bracketed(body, at)
    ending = body[at:].partition(":")[0]
    if "->" in ending:
        raise _NotUnderstood("its `execute` returns something")
    parameters, inferred = _parameters(inside)
    arguments, calls = _arguments(listed)
    return Signature(
        kernel, struct, module, parameters, inferred, arguments, calls, "raises" in ending.split()
    )


def _parameters(text: str) -> tuple[tuple[Parameter, ...], tuple[str, ...]]:
    given: list[Parameter] = []
    inferred: list[str] = []
    for part in _split(text):
        if part == "//":
            inferred += [p.name for p in given]
            given.clear()
        elif part not in ("*", "/"):
            declared, equals, _ = part.partition("=")
            name, _, type = (s.strip() for s in declared.partition(":"))
            given.append(Parameter(name, type, bool(equals)))
    wanted = tuple(p for p in given if p.name != "target")
    for p in wanted:
        if p.type not in _PARAMETERS and not p.optional:
            raise _NotUnderstood(f"its parameter `{p.name}` has the type {p.type}")
    return wanted, tuple(inferred)


def _arguments(text: str) -> tuple[tuple[Argument, ...], tuple[str, ...]]:
    found: list[Argument] = []
    calls: list[str] = []
    for part in _split(text):
        match = _ARGUMENT.fullmatch(part)
        if match is None:
            raise _NotUnderstood(f"its argument `{part}` has no type")
        name, type = match.groups()
        head, inside = _type(type.partition("=")[0] if "[" not in type else type)
        if head in ("DeviceContext", "DeviceContextPtr"):
            calls.append("")
            continue
        calls.append(name)
        if head in _TENSORS:
            words = dict(_keyword(p) for p in _split(inside) if p != "...")
            if words.keys() - {"dtype", "rank"}:
                raise _NotUnderstood(f"the type of its argument `{name}` is {type}")
            dtype, rank = words.get("dtype", ""), words.get("rank", "")
            found.append(Argument(name, _TENSORS[head], dtype, rank))
        elif head in _SCALARS and not inside:
            found.append(Argument(name, "scalar", f"DType.{_SCALARS[head]}", ""))
        elif head == "Scalar" and inside:
            found.append(Argument(name, "scalar", inside.strip(), ""))
        elif "Variadic" in head or name.startswith("*"):
            raise _NotUnderstood(f"its argument `{name.lstrip('*')}` is any number of tensors")
        else:
            raise _NotUnderstood(f"its argument `{name}` has the type {' '.join(type.split())}")
    if not any(a.kind in ("output", "mutable") for a in found):
        raise _NotUnderstood("it writes to no tensor")
    if sum(a.kind == "list" for a in found) > 1:
        raise _NotUnderstood("it takes several lists of tensors")
    return tuple(found), tuple(calls)


def _type(text: str) -> tuple[str, str]:
    match = _TYPE.fullmatch(text.strip())
    return (match[1], match[2] or "") if match else (text.strip(), "")


def _keyword(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    return (name.strip(), value.strip()) if equals else ("", text)


def _bracketed(text: str, at: int) -> tuple[str, int]:
    """What stands between a bracket and the one that closes it, and the place behind that."""
    open_, depth = text[at], 0
    for i in range(at, len(text)):
        if text[i] == open_:
            depth += 1
        elif text[i] == _CLOSES[open_]:
            depth -= 1
            if depth == 0:
                return text[at + 1 : i], i + 1
    raise _NotUnderstood("its `execute` has a bracket that does not close")


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket, without comments."""
    text = re.sub(r"#[^\n]*", "", text)
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[({") - (c in "])}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p for part in parts if (p := " ".join(part.split()))]
