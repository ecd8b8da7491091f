"""Dataclasses as what JSON can hold, and back. What is read is checked against the type hints."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A dataclass, at any depth, as dicts, lists, texts, numbers and ``None``."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {k: to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """The dataclass that ``to_plain`` was given.

    Args:
        kind: The dataclass.
        value: What JSON held.

    Raises:
        ValueError: A field is missing, unknown or of another type.
    """
    return _read(kind, value, kind.__name__)


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, parts = _taken_apart(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = _hints(hint)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{where} has other fields")
        return hint(**{n: _read(h, value[n], f"{where}.{n}") for n, h in hints.items()})
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        for part in parts:
            try:
                return _read(part, value, where)
            except ValueError:
                continue
    elif origin is tuple and isinstance(value, list):
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_read(parts[0], v, where) for v in value)
        if len(parts) == len(value):
            return tuple(_read(p, v, where) for p, v in zip(parts, value, strict=True))
    elif origin is list and isinstance(value, list):
        return [_read(parts[0], v, where) for v in value]
    elif origin is dict and isinstance(value, dict):
        return {k: _read(parts[1], v, where) for k, v in value.items()}
    elif type(value) is hint:
        return value
    raise ValueError(f"{where} is {ascii(value)[:40]}")


@cache
def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
