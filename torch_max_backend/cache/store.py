"""Artifacts on disk: checked, atomic, bounded, private to the user.

An entry is one file: a line of JSON (format, checksum, what its key was made of, the keys of all
graphs in the artifact), then the artifact. An artifact is native code, so nothing is loaded whose
checksum or owner is wrong. Whatever is wrong with an entry or the directory is logged and counts as
a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch_max_backend import environment
from torch_max_backend.errors import CacheError
from torch_max_backend.log import get_logger
from torch_max_backend.process.private_folders import made_private, place, private_dir, warn_once

FORMAT = 2
SUFFIX = ".max"
_PARTIAL = ".tmp"
_STALE_NS = 3600 * 10**9
MAX_BYTES = 8 * 2**30
# A file beside the folder that says when that was last looked through for what is too much: every
# hour, and after this share of the bound.
_PRUNED, _PRUNE_S, _PRUNE_SHARE = ".pruned", 3600, 64

log = get_logger("cache")

# Each is called with a key and what became of its artifact: "found", "stored" or "failed".
listeners: list[Callable[[str, str], None]] = []


class Entry(NamedTuple):
    """What is stored under a key.

    Attributes:
        artifact: The compiled module.
        graphs: The keys of its graphs, in order.
    """

    artifact: bytes
    graphs: tuple[str, ...]


def _tell(key: str, what: str) -> None:
    for listener in (*listeners,):  # one may leave meanwhile
        listener(key, what)


def usable_folder() -> Path:
    """The folder of the entries.

    Raises:
        CacheError: The cache is off, or the folder cannot be used.
    """
    if not environment.cache_enabled():
        raise CacheError(
            "The cache is off: TORCH_MAX_BACKEND_CACHE says so.",
            "Unset it, or set it to 1.",
        )
    try:
        return made_private("artifacts")
    except (OSError, RuntimeError) as e:  # RuntimeError: there is no home directory
        raise CacheError(
            f"The cache directory {place('artifacts')} cannot be used: {e}",
            "Set TORCH_MAX_BACKEND_CACHE_DIR to a directory that you own and can write to.",
        ) from e


def _path(key: str) -> Path | None:
    folder = private_dir("artifacts")
    return None if folder is None else folder / (key + SUFFIX)


def get(key: str) -> Entry | None:
    """What is stored under a key, or ``None``."""
    path = _path(key)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise ValueError("it belongs to another user")
            header = json.loads(file.readline(1 << 20))
            artifact = file.read()
        if header["format"] != FORMAT:
            raise ValueError(f"it has format {header['format']}, not {FORMAT}")
        graphs = tuple(header["graphs"])
        if header["key"] != key or key not in graphs:
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
    _tell(key, "found")
    return Entry(artifact, graphs)


def components(key: str) -> dict[str, str] | None:
    """What a stored key is made of, or ``None``."""
    path = _path(key)
    try:
        if path is not None:
            with open(path, "rb") as file:
                return dict(json.loads(file.readline(1 << 20))["components"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        log.info("No components of %s: %s", key, e)
    return None


def has(key: str) -> bool:
    """Whether something is stored under a key; nothing of it is checked."""
    path = _path(key)
    try:
        return path is not None and path.exists()
    except OSError:
        return False


def why_missing(components: Mapping[str, str]) -> str:
    """Why a key that is made of these components is not stored: what differs in the entry that is
    most like it."""
    folder = private_dir("artifacts")
    if folder is None:
        return "the cache directory cannot be used"
    best: list[str] | None = None
    for path in entries(folder):
        try:
            with open(path, "rb") as file:
                known = json.loads(file.readline(1 << 20))["components"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if known.get("graph") == components["graph"]:
            other = [name for name, value in components.items() if known.get(name) != value]
            best = other if best is None or len(other) < len(best) else best
    if best is None:
        return "no artifact of this graph"
    return f"its artifact is of another {' and '.join(best)}" if best else "it is gone"


def entries(folder: Path) -> list[Path]:
    """The files of the entries in a folder; none if it is gone or cannot be read."""
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except OSError:
        return []


def put(
    key: str, artifact: bytes, components: Mapping[str, str], graphs: Sequence[str] = ()
) -> None:
    """Store an artifact; a directory that cannot take it is logged once and otherwise ignored.

    Args:
        key: Of one graph of the artifact.
        artifact: The compiled module.
        components: What the key was made of.
        graphs: The keys of all its graphs, in order; of the only one by default.
    """
    path = _path(key)
    if path is None:
        _tell(key, "failed")
        return
    header = {
        "format": FORMAT,
        "key": key,
        "sha256": hashlib.sha256(artifact).hexdigest(),
        "components": dict(components),
        "graphs": list(graphs or [key]),
    }
    try:
        write(path, [json.dumps(header).encode() + b"\n", artifact])
    except OSError as e:
        not_stored([key], e)
    else:
        _tell(key, "stored")
        with contextlib.suppress(OSError):
            _prune_at_times(path.parent, len(artifact))


def not_stored(keys: Iterable[str], error: Exception) -> None:
    """Tell that the artifact of some graphs could not be written."""
    for key in keys:
        warn_once(place("artifacts"), "Artifacts could not be cached in %s: %s", error)
        _tell(key, "failed")


def write(path: Path, parts: Iterable[bytes]) -> None:
    """Make a file of these parts that only its owner can read, whole or not at all.

    Raises:
        OSError: It could not be written.
    """
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=_PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):  # its folder may be gone
            os.unlink(partial)
        raise


def discard(key: str) -> None:
    """Remove an entry that proved bad."""
    path = _path(key)
    if path is not None:
        try:
            path.unlink(missing_ok=True)
        except OSError as e:
            warn_once(path.parent, "Artifacts in %s could not be removed: %s", e)


# Bytes that this process has written since it last looked.
_written = 0


def _prune_at_times(folder: Path, size: int) -> None:
    """Prune after an entry of this size was written, unless that was done not long ago: thousands
    of entries take longer to look through than a small graph takes to plan."""
    global _written
    _written += size
    stamp = folder.parent / _PRUNED
    try:
        age = abs(time.time() - stamp.stat().st_mtime)
    except FileNotFoundError:
        age = math.inf
    if age > _PRUNE_S or _written > MAX_BYTES // _PRUNE_SHARE:
        _written = 0
        with contextlib.suppress(OSError):
            stamp.touch(0o600)
        prune(folder)


def prune(folder: Path) -> None:
    """Remove the least recently used entries beyond the bound, and what killed writers left."""
    known = []
    stale = time.time_ns() - _STALE_NS
    for path in folder.iterdir():
        try:
            state = path.lstat()
        except FileNotFoundError:
            continue  # another process was faster
        if path.suffix == SUFFIX:
            known.append((state.st_mtime_ns, state.st_size, path))
        elif path.suffix == _PARTIAL and state.st_mtime_ns < stale:
            path.unlink(missing_ok=True)
    total = sum(size for _, size, _ in known)
    for _, size, path in sorted(known):
        if total <= MAX_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size
