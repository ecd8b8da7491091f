"""Compiled modules of the tests, kept from run to run.

A module that MAX compiled before, from the same text and the same kernels, is loaded: to compile
one costs 12 CPU seconds and more. ``TORCH_MAX_BACKEND_TEST_CACHE=0`` compiles everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_max_backend import environment
from torch_max_backend.cache.compatibility import environment_components
from torch_max_backend.engines.max.loading import load_models, load_serialized
from torch_max_backend.engines.max.module import compile_module, serialized
from torch_max_backend.errors import CacheError

if TYPE_CHECKING:
    from max.graph import Module

# Some tests change the cache directory.
_FOLDER = environment.cache_dir() / "tests"
_SUFFIX = ".mef"
# Modules that no run has asked for in so many seconds are dropped.
_KEPT = 14 * 24 * 3600
# What decides what a compiler makes of a text; the libraries say which kernels.
_COMPILERS = ("torch", "max", "mojo", "target")


def models_of(module: Module, libraries: Sequence[Path], what: str) -> list[Any]:
    """The models of a module, in the order of its graphs.

    Raises:
        CompilationError: MAX's compiler refused it.
    """
    path = _path(module, libraries)
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
    found = _read(path)
    if found is None:
        found = serialized(compile_module(module, libraries, what))
        _write(path, found)
    return found


def _path(module: Module, libraries: Sequence[Path], target: str = "") -> Path | None:
    if os.environ.get("TORCH_MAX_BACKEND_TEST_CACHE") == "0":
        return None
    parts = environment_components()
    content = hashlib.sha256(f"{module.mlir_module}\n{target}".encode())
    for name in _COMPILERS:
        content.update(parts[name].encode())
    for library in sorted(libraries):
        content.update(hashlib.sha256(library.read_bytes()).digest())
    return _FOLDER / f"{content.hexdigest()}{_SUFFIX}"


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
        # It is native code: nobody else may write there.
        _FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_suffix(f".{secrets.token_hex(8)}")
        partial.write_bytes(hashlib.sha256(artifact).digest() + artifact)
        os.replace(partial, path)
        for old in _FOLDER.iterdir():
            if old.stat().st_mtime < time.time() - _KEPT:
                old.unlink(missing_ok=True)
