"""Models that this process has loaded, by key, so that equal graphs load one artifact once.

A model lives as long as something uses it: MAX's models take no weak references, so each is held
by a small object that its users keep alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from torch_max_backend.process import fork_safety

if TYPE_CHECKING:
    from max.engine import Model


class _Held:
    __slots__ = ("__weakref__", "model")

    def __init__(self, model: Model) -> None:
        self.model = model

    def __del__(self, ended: Callable[[], None] = fork_safety.model_ended) -> None:
        ended()  # an argument, because names are gone when the interpreter ends


_held: WeakValueDictionary[str, _Held] = WeakValueDictionary()
_by_user: WeakKeyDictionary[object, list[_Held]] = WeakKeyDictionary()
# A lock for each key that someone works on, and how many threads hold or await it.
_busy: dict[str, tuple[threading.Lock, int]] = {}
_guard = fork_safety.lock()


def get(key: str) -> Model | None:
    """The loaded model of a key, if something of this process still uses it."""
    held = _held.get(key)
    return None if held is None else held.model


def keep(models: Mapping[str, Model], user: object) -> None:
    """Let ``get`` find models for as long as ``user`` lives.

    Args:
        models: By key: what the user runs, and what was loaded with it.
        user: It is hashed by identity and takes weak references.
    """
    with _guard:
        kept = _by_user[user] = []
        for key, model in models.items():
            held = _held.get(key)
            if held is None or held.model is not model:
                held = _held[key] = _Held(model)
            kept.append(held)


@contextmanager
def alone(key: str) -> Iterator[None]:
    """In the body, no other thread of this process works on the same key."""
    with _guard:
        lock, count = _busy.get(key) or (threading.Lock(), 0)
        _busy[key] = (lock, count + 1)
    try:
        with lock:
            yield
    finally:
        with _guard:
            lock, count = _busy.pop(key)
            if count > 1:
                _busy[key] = (lock, count - 1)


@fork_safety.in_child
def _in_child() -> None:
    """Nobody works on anything here, and no model may end."""
    _busy.clear()
    for held in _held.values():
        fork_safety.keep_for_ever(held)
