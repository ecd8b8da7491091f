"""This package's part of ``torch.compiler.save_cache_artifacts`` and ``load_cache_artifacts``.

What a process uses or makes of the cache directory is noted: artifacts and plans, and the libraries
of kernels that run them. A process elsewhere that loads what was saved finds them in its cache.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from torch_max_backend import environment
from torch_max_backend.cache import kernel_libraries, store
from torch_max_backend.cache.kernel_libraries import Manifest
from torch_max_backend.compat import cache_artifacts
from torch_max_backend.log import get_logger
from torch_max_backend.process.private_folders import made_private, private_dir

_KEY = re.compile(r"(artifacts|steps)/(\w[\w.-]*)", re.ASCII)

log = get_logger("cache")


@cache
def register() -> None:
    """Have torch save and load this package's files."""
    cache_artifacts.register(_read, _write)
    store.listeners.append(_of_store)
    kernel_libraries.listeners.append(_of_libraries)


def _of_store(key: str, what: str) -> None:
    if what in ("found", "stored"):
        cache_artifacts.note(f"artifacts/{key}{store.SUFFIX}")


def _of_libraries(manifest: Manifest) -> None:
    # A manifest says that its library is there, so it comes after it.
    cache_artifacts.note(f"{kernel_libraries.FOLDER}/{manifest.file.name}")
    cache_artifacts.note(f"{kernel_libraries.FOLDER}/{manifest.path.name}")


def _read(key: str) -> bytes:
    folder, _, name = key.partition("/")
    place = private_dir(folder)
    try:
        return b"" if place is None else (place / name).read_bytes()
    except OSError as e:
        log.warning("%s is not saved: %s", key, e)
        return b""


def _write(key: str, content: bytes) -> None:
    known = _KEY.fullmatch(key)
    if known is None or not content or not environment.cache_enabled():
        return
    try:
        path: Path = made_private(known[1]) / known[2]
        if not path.exists():
            # What it holds is checked when it is used.
            store.write(path, [content])
    except (OSError, RuntimeError) as e:
        log.warning("%s cannot be put into the cache: %s", key, e)
