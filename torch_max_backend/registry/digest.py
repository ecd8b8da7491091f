"""What a lowering contributes to cache keys: the artifact's and AOTAutograd's.

The sources of this package are in other parts of both keys. A user's functions and Mojo sources are
in none, and change between two processes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from torch_max_backend.errors import CompilationError
from torch_max_backend.registry.kernel_sources import source_digest
from torch_max_backend.registry.lowerings import Library, Lowering

_PACKAGE = Path(__file__).resolve().parents[1]


def lowering_digest(lowering: Lowering, calls: Iterable[Mapping[str, Any]] = ()) -> str:
    """Digest of everything that decides what a lowering makes of a node.

    Args:
        lowering: The lowering.
        calls: The arguments of its nodes, as its ``supports`` takes them. Where a user's function
            of the arguments tells the Mojo sources, those that it tells for these are included.
    """
    if is_ours(lowering):
        return _digest_of_ours(lowering)
    found = hashlib.sha256()
    for field in dataclasses.fields(lowering):
        value = getattr(lowering, field.name)
        if field.name == "kernels" and not callable(value):
            value = _sources(lowering, {})
        _add(found, (field.name, value), {})
    if sources_vary(lowering):
        _add(found, sorted({_sources(lowering, arguments) for arguments in calls}), {})
    return found.hexdigest()


def sources_vary(lowering: Lowering) -> bool:
    """Whether a user's function of the arguments tells the Mojo sources of a lowering. A key that
    is made before the arguments are known cannot contain them."""
    return callable(lowering.kernels) and not _in_package(lowering.kernels)


def function_digest(function: Callable[..., Any]) -> str:
    """Digest of a function's module source, byte code, defaults and closure, and of the functions
    that it holds."""
    found = hashlib.sha256()
    _add(found, function, {})
    return found.hexdigest()


@cache
def _digest_of_ours(lowering: Lowering) -> str:
    """Of a lowering whose sources are in other parts of the keys."""
    values = [getattr(lowering, field.name) for field in dataclasses.fields(lowering)]
    named = [f"{v.__module__}.{v.__qualname__}" if inspect.isfunction(v) else v for v in values]
    found = hashlib.sha256()
    _add(found, named, {})
    return found.hexdigest()


def is_ours(lowering: Lowering) -> bool:
    """Whether nothing of a lowering comes from outside this package."""
    parts = (lowering.function, lowering.supports, lowering.kernels)
    return all(_in_package(p) if callable(p) else not _has_path(p) for p in parts)


def _has_path(value: Any) -> bool:
    return any(isinstance(v, Path) for v in (value if isinstance(value, tuple) else (value,)))


def _in_package(function: Any) -> bool:
    return (
        inspect.isfunction(function)
        and (function.__module__ or "").startswith("torch_max_backend.")
        and _file_in_package(function.__code__.co_filename)
    )


@cache
def _file_in_package(file: str) -> bool:
    return Path(file).resolve().is_relative_to(_PACKAGE)


def _sources(lowering: Lowering, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(_source, lowering.libraries(arguments)))


def _source(library: Library) -> str:
    if isinstance(library, str):
        return library
    try:
        return source_digest(library)
    except CompilationError as e:  # no graph can be compiled with it, but others can without
        return str(e)


def _add(digest: Any, value: Any, seen: dict[int, tuple[int, Any]]) -> None:
    """Feed a value, in a form that is the same in each process, to a digest.

    Args:
        digest: Of ``hashlib``.
        value: A function, or something that one holds.
        seen: What was fed already, by identity, with its position; held, so that nothing else
            gets its identity.
    """
    if isinstance(value, (tuple, list)):
        digest.update(f"{type(value).__name__} {len(value)}:".encode())
        for item in value:
            _add(digest, item, seen)
    elif isinstance(value, (set, frozenset)):
        _add(digest, sorted(map(repr, value)), seen)  # iterates differently in each process
    elif inspect.iscode(value):
        _add(digest, (value.co_code, value.co_names, value.co_varnames, value.co_consts), seen)
    elif isinstance(value, torch.Tensor):
        memory = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        _add(digest, (str(value.dtype), tuple(value.shape), memory.numpy().tobytes()), seen)
    elif not _has_parts(value):
        digest.update(f"{value!r};".encode())
    elif id(value) in seen:
        digest.update(f"again {seen[id(value)][0]};".encode())
    else:
        seen[id(value)] = len(seen), value
        for part in _parts(value):
            _add(digest, part, seen)


def _has_parts(value: Any) -> bool:
    """Whether a value's ``repr`` says too little of it, or its address."""
    known = (dict, functools.partial)
    if isinstance(value, known) or inspect.isfunction(value) or inspect.ismethod(value):
        return True
    own: Any = type(value).__repr__
    return own is object.__repr__ and hasattr(value, "__dict__")


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(sorted(value.items(), key=lambda item: repr(item[0])))
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if inspect.ismethod(value):
        return value.__func__, value.__self__
    if not inspect.isfunction(value):
        return type(value).__qualname__, _text(type(value)), vars(value)
    held = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
    return (
        value.__qualname__,
        _text(value),
        value.__code__,
        value.__defaults__,
        value.__kwdefaults__,
        {name: _content(cell) for name, cell in held},
    )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is assigned to it yet
        return None


@cache
def _file(owner: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(owner)
    except TypeError:  # typed at a prompt
        return None
    return None if file is None else Path(file)


def _text(owner: Any) -> bytes:
    """The source of the module of a function or class: constants and functions that it uses."""
    file = _file(owner)
    try:
        return b"" if file is None else file.read_bytes()
    except OSError:
        return b""
