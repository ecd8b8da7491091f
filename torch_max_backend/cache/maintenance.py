"""Looking after the cache directory: what is in it, whether it is whole, making room."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch_max_backend.cache import kernel_libraries, store
from torch_max_backend.cache.compatibility import misfits
from torch_max_backend.cache.key import cache_key
from torch_max_backend.errors import CacheError


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
    found = [_stored(path, check) for path in store.entries(store.usable_folder())]
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
    problem, graphs, versions = "", 0, ""
    misfit: tuple[str, ...] = ()
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
        CacheError: The cache is off, or its folder cannot be used, or an entry not be removed.
    """
    for entry in entries(check=True):
        if entry.problem:
            _remove(entry.path)
            yield entry


def prune(most: int = store.MAX_BYTES, *, misfits: bool = False) -> list[Stored]:
    """Remove the least recently used entries beyond a size; returns what was removed.

    Args:
        most: Bytes that may stay.
        misfits: Remove entries first that are for other machines or versions.

    Raises:
        CacheError: The cache is off, or its folder cannot be used, or an entry not be removed.
    """
    total, removed = 0, []
    for entry in entries():
        if (misfits and entry.misfit) or total + entry.size > most:
            _remove(entry.path)
            removed.append(entry)
        else:
            total += entry.size
    return removed


@dataclass(frozen=True)
class Library:
    """A library of kernels for the steps engine.

    Attributes:
        path: The file that describes it.
        family: The name of its kernels' source file.
        size: Bytes.
        used: When it was last used, seconds since the epoch.
        kernels: How many kernels it holds.
        problem: What is wrong with it, "" if nothing is.
    """

    path: Path
    family: str
    size: int
    used: float
    kernels: int
    problem: str


def libraries() -> list[Library]:
    """The libraries of the steps engine with what is wrong with them; checksums are compared.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
    """
    store.usable_folder()
    try:
        found = kernel_libraries.listed()
    except OSError as e:
        raise CacheError(f"The libraries of kernels cannot be listed: {e}") from e
    return [
        Library(path, path.name.partition("-")[0], 0, 0.0, 0, problem)
        if m is None
        else Library(path, m.family, m.size, m.used, len(m.symbols), problem)
        for path, m, problem in found
    ]


def verify_libraries() -> Iterator[Library]:
    """Check every library of the steps engine, and remove and return the bad ones.

    Raises:
        CacheError: The cache is off, or its folder cannot be used.
    """
    for library in libraries():
        if library.problem:
            kernel_libraries.remove(library.path)
            yield library


def clear() -> tuple[int, int]:
    """Remove everything: artifacts, precompiled kernels and libraries of kernels.

    Returns:
        How many files and bytes.

    Raises:
        CacheError: The cache is off, or its folder cannot be used, or a file not be removed.
    """
    count = size = 0
    artifacts = store.usable_folder()
    others = ("kernels", kernel_libraries.FOLDER)
    for folder in (artifacts, *(artifacts.parent / name for name in others)):
        try:
            found = list(folder.iterdir()) if folder.is_dir() else []
        except OSError as e:
            raise CacheError(f"{folder} cannot be read: {e}") from e
        for path in found:
            if path.is_file() and not path.is_symlink():
                size += path.stat().st_size
                count += 1
                _remove(path)
    return count, size


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise CacheError(f"{path} could not be removed: {e}") from e
