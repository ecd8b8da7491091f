"""Folders of the cache directory that nobody else can write to, and what stands in for them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from torch_max_backend import environment
from torch_max_backend.errors import CacheError
from torch_max_backend.log import get_logger
from torch_max_backend.process import fork_safety
from torch_max_backend.process.background_threads import at_exit
from torch_max_backend.process.temporary_folders import folder_until_exit

T = TypeVar("T")

log = get_logger("cache")


@dataclass
class Known:
    """What this process has learnt of the folders.

    Attributes:
        warned: Folders, each with the warning that was given for it.
        unwritable: Those in which writing failed.
        instead: Temporary folders that stand in for some.
    """

    warned: set[str] = field(default_factory=set)
    unwritable: set[str] = field(default_factory=set)
    instead: dict[str, Path] = field(default_factory=dict)


# Can be set, by who begins anew.
known = Known()

# More than any file of the cache directory but large artifacts takes.
_ROOM = 32 * 2**20
# What a disk has left that is not full.
_LEAST = 2**20


def place(name: str) -> str:
    """Where the folder ``name`` of the cache directory is, or would be; for messages and keys."""
    try:
        return str(environment.cache_dir() / name)
    except RuntimeError:  # there is no home directory
        return f"~/.cache/torch_max_backend/{name}"


def private_dir(name: str) -> Path | None:
    """The folder ``name`` of the cache directory, made if need be with mode 0700.

    ``None``, logged once, where it cannot be made, is not the user's, or others can write to it.
    """
    try:
        return made_private(name)
    except (OSError, RuntimeError) as e:
        warn_once(place(name), "The cache directory %s is not used: %s", e)
        return None


def made_private(name: str) -> Path:
    """The folder ``name`` of the cache directory, made if need be with mode 0700.

    Raises:
        OSError: It cannot be made, is not the user's, or others can write to it.
    """
    folder = environment.cache_dir() / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = os.lstat(folder)
    if not stat.S_ISDIR(state.st_mode):
        raise OSError("it is not a directory")
    if state.st_uid != os.geteuid():
        raise OSError("it belongs to another user")
    if state.st_mode & 0o077:
        raise OSError("others have access to it; run: chmod 700 on it")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise OSError("it is not writable")
    return folder


def warn_once(folder: str | Path, message: str, error: object) -> None:
    """Log a warning of one folder, as one only the first time.

    Args:
        folder: The folder.
        message: With two ``%s``, for the folder and the error.
        error: What went wrong.
    """
    key = f"{folder} {message}"
    if key not in known.warned:
        known.warned.add(key)
        log.warning(message, folder, error)


def folder_to_write(name: str) -> Path:
    """The folder ``name`` of the cache directory, or a temporary one that this process removes at
    its end, where the cache is off or the folder cannot be used (which is logged once).

    A disk that is full shows only when something is written: see ``written_in``.

    Raises:
        CacheError: There can be no temporary folder either.
    """
    if environment.cache_enabled() and place(name) not in known.unwritable:
        folder = private_dir(name)
        if folder is not None:
            return folder
    return _temporary(name)


def written_in(name: str, write: Callable[[Path], T]) -> T:
    """Write something to the folder ``name`` of the cache directory, or elsewhere.

    Whatever keeps the folder from being written to (a full disk, a quota, a read-only file system,
    a folder that is gone) is logged once; from then on this process writes to a temporary folder.

    Args:
        name: Of the folder.
        write: Called with the folder, and with a temporary one if that raises ``OSError``. It
            should leave no part of a file behind.

    Returns:
        What ``write`` returns.

    Raises:
        CacheError: The temporary folder cannot be written to either.
        SystemExit: Python is ending, in a thread that still writes.
    """
    folder = folder_to_write(name)
    if folder != known.instead.get(place(name)):
        try:
            return write(folder)
        except OSError as e:
            if at_exit():
                raise SystemExit from e  # Ends a thread without a word.
            warn_once(folder, "The cache directory %s cannot be written to: %s", e)
            known.unwritable.add(place(name))
    try:
        return write(_temporary(name))
    except OSError as e:
        raise _nowhere(e) from e


def check_free(folder: Path) -> None:
    """Raise if a disk is full, before something is made for it that takes long.

    Raises:
        OSError: It is full.
    """
    if shutil.disk_usage(folder).free < _LEAST:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def check_room(folder: Path) -> None:
    """Raise if a folder does not take a file, for programs that do not tell why they failed.

    Raises:
        OSError: It does not.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        part = os.urandom(2**20)  # some file systems store nothing for zeros
        for _ in range(_ROOM // len(part)):
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def _temporary(name: str) -> Path:
    """The temporary folder that stands in for a folder of the cache directory."""
    found = known.instead.get(place(name))
    if found is None or not found.is_dir():
        try:
            found = known.instead[place(name)] = folder_until_exit()
        except OSError as e:
            raise _nowhere(e) from e
    return found


def _nowhere(error: OSError) -> CacheError:
    return CacheError(
        f"Neither the cache directory nor a temporary folder can be written to: {error}",
        "Make room, or set TORCH_MAX_BACKEND_CACHE_DIR and TMPDIR to folders on another disk.",
    )


@fork_safety.in_child
def _in_child() -> None:
    """The parent removes its folders when it ends."""
    known.instead.clear()
