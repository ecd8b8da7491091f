"""Filling the cache ahead of time: when an image is built, before a service takes requests."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from torch_max_backend.backend import max_backend
from torch_max_backend.cache import store
from torch_max_backend.driver import background


@dataclass(frozen=True)
class Warmed:
    """What running a program did to the cache.

    Attributes:
        compiled: How many graphs were compiled and stored.
        loaded: How many were in the cache already.
        failed: How many were not stored, or failed to compile in the background; a warning said
            why.
        seconds: How long it took.
    """

    compiled: int
    loaded: int
    failed: int
    seconds: float


class _Watch:
    """Counts what becomes of artifacts."""

    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {"found": set(), "stored": set(), "failed": set()}
        self._failures = len(background.failures)
        self._start = time.perf_counter()

    def __call__(self, key: str, what: str) -> None:
        self._keys[what].add(key)

    def result(self) -> Warmed:
        found, stored, failed = (self._keys[w] for w in ("found", "stored", "failed"))
        return Warmed(
            compiled=len(stored),
            loaded=len(found - stored - failed),
            failed=len(failed - stored) + len(background.failures) - self._failures,
            seconds=time.perf_counter() - self._start,
        )


@contextmanager
def _watch() -> Iterator[_Watch]:
    watch = _Watch()
    store.listeners.append(watch)
    try:
        yield watch
    finally:
        store.listeners.remove(watch)


def warm(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Warmed:
    """Call a function or module once, so that what it compiles is in the cache.

    Call it as it will be used: the modes of torch (``no_grad``, ``eval``), dtypes and the sizes
    that are not dynamic are part of a graph. Graphs that the process has compiled already, and
    those compiled with the option ``cache=False``, are not counted.

    Args:
        function: Is compiled with ``max_backend``, or taken as it is if ``torch.compile`` made it.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
        MaxBackendError: A graph could not be compiled.
    """
    store.usable_folder()
    if not _is_compiled(function):
        function = torch.compile(function, backend=max_backend)
    with _watch() as watch:
        function(*args, **kwargs)
        background.wait_for_all()
        return watch.result()


def warm_script(script: str, arguments: Sequence[str] = ()) -> tuple[Warmed, Any]:
    """Run a script as Python does, so that what it compiles is in the cache.

    What processes started by the script compile is cached as well, but not counted.

    Args:
        script: Path of the script.
        arguments: Its command line, without its name.

    Returns:
        What was compiled, and the argument for ``sys.exit`` with which Python would have ended.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
        OSError: The script cannot be read.
    """
    store.usable_folder()
    if not os.path.isdir(script):
        with open(script, "rb"):
            pass  # an error of this command, not one of the script
    with _watch() as watch:
        status = run_script(script, arguments)
        return watch.result(), status


def _is_compiled(function: Callable[..., Any]) -> bool:
    if isinstance(function, torch.nn.Module):
        from torch_max_backend.compat.dynamo import OptimizedModule

        return isinstance(function, OptimizedModule) or function._compiled_call_impl is not None
    return hasattr(function, "_torchdynamo_orig_callable")


def run_script(script: str, arguments: Sequence[str]) -> Any:
    """Run a script as Python does; the argument for ``sys.exit`` with which it would have ended."""
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    status = None
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as e:
        status = e.code
    except Exception as e:
        # Python's own way to end; nobody waits for the background compiles of a failed program.
        e.__traceback__ = _of_script(e.__traceback__)
        sys.excepthook(type(e), e, e.__traceback__)
        return 1
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()  # Python does too, and it may compile
    background.wait_for_all()
    return status


def _of_script(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that run the script."""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while traceback is not None and traceback.tb_frame.f_code.co_filename in ours:
        traceback = traceback.tb_next
    return traceback
