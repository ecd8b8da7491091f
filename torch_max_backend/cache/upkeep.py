"""Looking after the cache directory: what is in it, whether it is whole, making room."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch_max_backend.cache import store
from torch_max_backend.cache.fit import misfits
from torch_max_backend.cache.key import cache_key


@dataclass(frozen=True)
class Stored:
    """An entry of the cache.

    Attributes:
        path: Its file.
        size: Bytes.
        used: When it was last used, seconds since the epoch.
        graphs: How many graphs its artifact holds.
        versions: Versions of torch and MAX that it was made with, "" if it cannot be read.
        misfit: What of this machine or installation differs from what it was made for.
        problem: What is wrong with it, "" if nothing is known to be.
    """

    path: Path
    size: int
    used: float
    graphs: int
    versions: str
    misfit: tuple[str, ...]
    problem: str


def entries(*, check: bool = False) -> list[Stored]:
    """The entries, the most recently used first.

    Args:
        check: Read the artifacts and compare their checksums.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
    """
    found = [_stored(path, check) for path in store.usable_folder().glob(f"*{store.SUFFIX}")]
    return sorted((e for e in found if e is not None), key=lambda e: -e.used)


def _stored(path: Path, check: bool) -> Stored | None:
    try:
        state = path.stat()
        with open(path, "rb") as file:
            line = file.readline(1 << 20)
            digest = hashlib.file_digest(file, "sha256").hexdigest() if check else ""
    except FileNotFoundError:
        return None  # another process was faster
    except OSError as e:
        return Stored(path, 0, 0.0, 0, "", (), str(e))
    problem, graphs, versions, misfit = "", 0, "", ()
    try:
        header = json.loads(line)
        parts, graphs = dict(header["components"]), len(header["graphs"])
        versions = f"torch {parts.get('torch')}, max {parts.get('max')}"
        misfit = tuple(misfits(parts))
        if header["format"] != store.FORMAT:
            problem = f"it has format {header['format']}, not {store.FORMAT}"
        elif path.name != header["key"] + store.SUFFIX or cache_key(parts) != header["key"]:
            problem = "its key is not that of its components"
        elif check and header["sha256"] != digest:
            problem = "its checksum is wrong"
    except (ValueError, KeyError, TypeError, RecursionError):
        problem = "it has no header"
    return Stored(path, state.st_size, state.st_mtime, graphs, versions, misfit, problem)


def verify() -> Iterator[Stored]:
    """Check every entry, and remove and return the bad ones.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
    """
    for entry in entries(check=True):
        if entry.problem:
            with contextlib.suppress(FileNotFoundError):
                entry.path.unlink()
            yield entry


def prune(most: int = store.MAX_BYTES, *, misfits: bool = False) -> list[Stored]:
    """Remove the least recently used entries beyond a size; returns what was removed.

    Args:
        most: Bytes that may stay.
        misfits: Remove entries first that are for other machines or versions.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
    """
    total, removed = 0, []
    for entry in entries():
        if (misfits and entry.misfit) or total + entry.size > most:
            with contextlib.suppress(FileNotFoundError):
                entry.path.unlink()
            removed.append(entry)
        else:
            total += entry.size
    return removed


def clear() -> tuple[int, int]:
    """Remove everything: artifacts and precompiled kernels. Returns how many files and bytes.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
    """
    count = size = 0
    for folder in (store.usable_folder(), store.usable_folder().parent / "kernels"):
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_file() and not path.is_symlink():
                size += path.stat().st_size
                count += 1
                path.unlink(missing_ok=True)
    return count, size
