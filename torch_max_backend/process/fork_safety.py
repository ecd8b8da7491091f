"""Forked children of a process that uses MAX.

MAX's threads are not in a forked child, and what waits for one of them waits for ever: executing or
loading a model, freeing the last memory of one, the C++ destructors that run when the child exits.
So a child runs nothing of MAX, and frees nothing that it inherited.

A process that has only built MAX graphs, to plan steps, has threads of MAX's CPU device as well.
Its children go on planning and running steps, which need none of them, but MAX cannot compile in
them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from torch_max_backend.errors import ForkError

_RLock = type(threading.RLock())

_locks: WeakSet[Any] = WeakSet()
_in_child: list[Callable[[], None]] = []
# Whether MAX has started threads in this process or the one that it was forked from.
_used = False
_inherited = False
# Whether MAX graphs have been built, in this process and in the one that it was forked from.
_built = False
_built_before = False
# Whether results may outlive their model, which then ends with the last one of them.
_orphans = False
_results: list[Any] = []


def lock() -> threading.Lock:
    """A lock that is free in a forked child, whoever holds it in the parent."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """The same, for a lock that its owner may take again."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(action: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in each forked child; as a decorator."""
    _in_child.append(action)
    return action


def use() -> None:
    """Called before MAX starts threads in this process.

    Raises:
        ForkError: It cannot, having been forked from one where it had.
    """
    global _used
    check_compile()
    _used = True


def build() -> None:
    """Called before a MAX graph is built."""
    global _built
    _built = True


def inherited() -> bool:
    """Whether this process was forked from one that uses MAX."""
    return _inherited


def check() -> None:
    """Raise if this process was forked from one that uses MAX.

    Raises:
        ForkError: It was.
    """
    if _inherited:
        raise ForkError(
            "This process was forked from one that uses MAX, whose threads are not here.",
            "Start processes with the method 'spawn' or 'forkserver' "
            "(multiprocessing.get_context, multiprocessing_context= of a DataLoader), or call "
            "compiled models in the parent alone.",
        )


def check_compile() -> None:
    """Raise if MAX cannot compile or load anything here.

    Raises:
        ForkError: This process was forked from one that uses MAX, or that has built its graphs.
    """
    check()
    if _built_before:
        raise ForkError(
            "This process was forked from one that has built MAX graphs: their threads are not "
            "here, and MAX's compiler would wait for them. Steps run as ever.",
            "Start processes with the method 'spawn' or 'forkserver', or compile in the parent.",
        )


def model_ended() -> None:
    """Called when a model is freed: tensors that it made may live on."""
    global _orphans
    _orphans = True


def keep_for_ever(value: object) -> None:
    """Never free an object, nor what it holds."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _before() -> None:
    """Find the tensors, here and not in the child: to look at each object copies its page there."""
    global _results
    if _used and _orphans:
        import torch

        _results = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]


def _after_in_parent() -> None:
    global _results
    _results = []


def _after_in_child() -> None:
    global _inherited, _built_before
    _built_before = _built
    for held in _locks:
        _reset(held)
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    if dynamo is not None:  # another thread may have been compiling
        _reset(dynamo.compile_lock)
    if _used and not _inherited:
        _inherited = True
        end_without_destructors()
    keep_for_ever(_results)
    for action in _in_child:
        action()


def _reset(held: Any) -> None:
    if not isinstance(held, _RLock) or not held._is_owned():  # type: ignore[attr-defined]
        held._at_fork_reinit()


def end_without_destructors() -> None:
    """Have this process end after Python and before C++ has finished with it (on Linux)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        # The last one to be registered runs first: streams are flushed.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
