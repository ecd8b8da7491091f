"""Artifacts on disk: checked, atomic, bounded, private to the user.

An entry is one file: a line of JSON (format, checksum, what its key was made of), then the
artifact. An artifact is native code, so nothing is loaded whose checksum or owner is wrong.
Whatever is wrong with an entry or the directory is logged and counts as a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from torch_max_backend.log import get_logger
from torch_max_backend.private_dir import private_dir

_FORMAT = 1
_SUFFIX = ".max"
_PARTIAL = ".tmp"
_STALE_NS = 3600 * 10**9
MAX_BYTES = 8 * 2**30

log = get_logger("cache")


def _path(key: str) -> Path | None:
    folder = private_dir("artifacts")
    return None if folder is None else folder / (key + _SUFFIX)


def get(key: str) -> bytes | None:
    """The artifact stored under a key, or ``None``."""
    path = _path(key)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise ValueError("it belongs to another user")
            header = json.loads(file.readline(1 << 20))
            artifact = file.read()
        if header["format"] != _FORMAT:
            raise ValueError(f"it has format {header['format']}, not {_FORMAT}")
        if header["key"] != key:
            raise ValueError("it holds another key")
        if header["sha256"] != hashlib.sha256(artifact).hexdigest():
            raise ValueError("its checksum is wrong")
    except FileNotFoundError:
        log.info("No cached artifact for %s", key)
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        log.warning("The cached artifact %s is ignored: %s", path, e)
        discard(key)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # recency, for the size bound
    return artifact


def put(key: str, artifact: bytes, components: Mapping[str, str]) -> None:
    """Store an artifact; a directory that cannot take it is logged and otherwise ignored."""
    path = _path(key)
    if path is None:
        return
    header = {
        "format": _FORMAT,
        "key": key,
        "sha256": hashlib.sha256(artifact).hexdigest(),
        "components": dict(components),
    }
    try:
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=_PARTIAL)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n" + artifact)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise
        _prune(path.parent)
    except OSError as e:
        log.warning("The artifact could not be cached in %s: %s", path.parent, e)


def discard(key: str) -> None:
    """Remove an entry that proved bad."""
    path = _path(key)
    if path is not None:
        try:
            path.unlink(missing_ok=True)
        except OSError as e:
            log.warning("The cached artifact %s could not be removed: %s", path, e)


def _prune(folder: Path) -> None:
    """Remove the least recently used entries beyond the bound, and what killed writers left."""
    entries = []
    stale = time.time_ns() - _STALE_NS
    for path in folder.iterdir():
        try:
            state = path.lstat()
        except FileNotFoundError:
            continue  # another process was faster
        if path.suffix == _SUFFIX:
            entries.append((state.st_mtime_ns, state.st_size, path))
        elif path.suffix == _PARTIAL and state.st_mtime_ns < stale:
            path.unlink(missing_ok=True)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size
