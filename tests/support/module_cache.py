"""Compiled modules of the tests, kept from run to run.

A module that MAX compiled before, from the same text and the same kernels, is loaded: to compile
one costs 12 CPU seconds and more. ``TORCH_MAX_BACKEND_TEST_CACHE=0`` compiles everything.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.support.home import HOME
from torch_max_backend.cache.compatibility import environment_components
from torch_max_backend.engines.max.loading import load_models, load_serialized
from torch_max_backend.engines.max.module import compile_module, serialized
from torch_max_backend.errors import CacheError
from torch_max_backend.registry.kernel_sources import (
    kernel_library_name,
    kernel_library_names,
    kernel_sources,
    precompile,
)

if TYPE_CHECKING:
    from max.graph import Module

# What it has is native code: nobody else may write there.
_FOLDER = HOME / "tests"
_KERNELS = HOME / "kernels"
_SUFFIX = ".mef"
# Modules that no run has asked for in so many seconds are dropped.
_KEPT = 14 * 24 * 3600
# What decides what a compiler makes of a text; the libraries say which kernels.
_COMPILERS = ("torch", "max", "mojo", "target")
# Kernels of this package: where a module calls them, and where they are made.
_KERNEL = re.compile(r"\btmb_\w+")
_REGISTERED = re.compile(r'^@register\("(\w+)"\)', re.MULTILINE)


def models_of(module: Module, libraries: Sequence[Path], what: str) -> list[Any]:
    """The models of a module, in the order of its graphs.

    Raises:
        CompilationError: MAX's compiler refused it.
    """
    path = _path(module, libraries)
    with _alone(path):
        found = _read(path)
        if found is not None:
            return load_serialized(found)
        compiled = compile_module(module, libraries, what)
        # A full disk is no reason to fail.
        with contextlib.suppress(CacheError):
            _write(path, serialized(compiled))
    return load_models(compiled)


def artifact_of(module: Module, libraries: Sequence[Path], what: str, target: str = "") -> bytes:
    """The artifact of a module.

    Args:
        module: The module.
        libraries: The kernel libraries that it needs.
        what: What it is, for messages.
        target: The accelerator that it is for, if this machine has none.

    Raises:
        CompilationError: MAX's compiler refused it.
    """
    path = _path(module, libraries, target)
    return _kept(path, lambda: serialized(compile_module(module, libraries, what)))


@contextlib.contextmanager
def kept_compiles() -> Iterator[None]:
    """In the body, a graph that the backend compiles in this process is compiled once a machine.

    For tests with a cache of their own that are about everything but the compiler.
    """
    from torch_max_backend.engines.max import loading, module

    with (
        mock.patch.object(module, "compile_module", _compiled),
        mock.patch.object(module, "serialized", lambda made: made.artifact),
        mock.patch.object(loading, "load_models", _loaded),
        kept_kernels(),
    ):
        yield


def kept_kernels() -> contextlib.AbstractContextManager[Any]:
    """In the body, a package of kernels that a graph for MAX needs is compiled once a machine."""
    from torch_max_backend.registry import kernel_sources

    return mock.patch.object(kernel_sources, "precompile", _precompiled)


def kept_text(source: str, compiled: Callable[[], str]) -> str:
    """What the Mojo compiler makes of ``source``, which says how it is called too: made once a
    machine."""
    if os.environ.get("TORCH_MAX_BACKEND_TEST_CACHE") == "0":
        return compiled()
    content = hashlib.sha256(f"{source}\n{environment_components()['mojo']}".encode())
    path = _FOLDER / f"{content.hexdigest()}{_SUFFIX}"
    return _kept(path, lambda: compiled().encode()).decode()


def kept_for_targets() -> contextlib.AbstractContextManager[Any]:
    """In the body, a package for another machine is compiled once by this one."""
    from torch_max_backend.ahead_of_time import elsewhere

    return mock.patch.object(elsewhere, "compile_elsewhere", _elsewhere(elsewhere))


def kept_elsewhere() -> contextlib.AbstractContextManager[Any]:
    """In the body, what a worker process compiles it compiles once a machine."""
    from torch_max_backend.engines.max import worker

    return mock.patch.object(worker, "compile_elsewhere", _elsewhere(worker))


def _elsewhere(owner: Any) -> Callable[..., bytes]:
    compile_elsewhere = owner.compile_elsewhere

    def compiled(
        module: Module, libraries: Sequence[Path], *what: Any, target: Any = "", **kw: Any
    ) -> bytes:
        path = _path(module, libraries, str(target))
        if target:
            kw["target"] = target
        return _kept(path, lambda: compile_elsewhere(module, libraries, *what, **kw))

    return compiled


@dataclass(frozen=True)
class _Kept:
    artifact: bytes


def _compiled(module: Module, libraries: Sequence[Path], what: str, count: int = 0) -> _Kept:
    return _Kept(artifact_of(module, libraries, what))


def _loaded(made: Any) -> list[Any]:
    return load_serialized(made.artifact) if isinstance(made, _Kept) else load_models(made)


def _precompiled(sources: Path, out: Path) -> None:
    known = _KERNELS / out.name
    if known.is_file():
        shutil.copy(known, out)
        return
    precompile(sources, out)
    if out.name in kernel_library_names():
        # Where others have access, the package would use no kernels that are kept there.
        _KERNELS.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = _KERNELS / f".partial-{secrets.token_hex(8)}"
        shutil.copy(out, partial)
        os.replace(partial, known)


def _path(module: Module, libraries: Sequence[Path], target: str = "") -> Path | None:
    if os.environ.get("TORCH_MAX_BACKEND_TEST_CACHE") == "0":
        return None
    parts = environment_components()
    text = str(module.mlir_module)
    ours = kernel_library_names()
    for library in libraries:
        # Tests have caches of their own, where the same libraries have other paths.
        text = text.replace(str(library), "" if library.name in ours else library.name)
    content = hashlib.sha256(f"{text}\n{target}".encode())
    for name in _COMPILERS:
        content.update(parts[name].encode())
    # Names say what libraries are made of; no two precompilations give the same bytes. Of ours only
    # the kernels matter that the module calls.
    made_of = {library.name for library in libraries} - ours
    families = _families()
    made_of |= {kernel_library_name(families[k]) for k in _KERNEL.findall(text) if k in families}
    for name in sorted(made_of):
        content.update(name.encode())
    return _FOLDER / f"{content.hexdigest()}{_SUFFIX}"


@cache
def _families() -> dict[str, str]:
    """The family of each kernel of this package."""
    root = kernel_sources()
    return {
        kernel: ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.glob("*/*.mojo")
        for kernel in _REGISTERED.findall(path.read_text())
    }


def _kept(path: Path | None, compiled: Callable[[], bytes]) -> bytes:
    """The artifact that is kept at a path, or else one that is compiled, and kept."""
    with _alone(path):
        found = _read(path)
        if found is None:
            found = compiled()
            _write(path, found)
    return found


@contextlib.contextmanager
def _alone(path: Path | None) -> Iterator[None]:
    """In the body, no other process makes what is kept at a path."""
    if path is None:
        yield
        return
    _FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path | None) -> bytes | None:
    if path is None or not path.exists():
        return None
    data = path.read_bytes()
    checksum, found = data[:32], data[32:]
    if hashlib.sha256(found).digest() != checksum:
        return None
    os.utime(path)
    return found


def _write(path: Path | None, artifact: bytes) -> None:
    if path is None:
        return
    with contextlib.suppress(OSError):
        partial = path.with_suffix(f".{secrets.token_hex(8)}")
        partial.write_bytes(hashlib.sha256(artifact).digest() + artifact)
        os.replace(partial, path)
        for old in _FOLDER.iterdir():
            if old.stat().st_mtime < time.time() - _KEPT:
                old.unlink(missing_ok=True)
