"""Folders of the cache directory that nobody else can write to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torch_max_backend import environment
from torch_max_backend.log import get_logger

log = get_logger("cache")
_refused: set[str] = set()


def private_dir(name: str) -> Path | None:
    """The folder ``name`` of the cache directory, made if need be with mode 0700.

    ``None``, logged once, where it cannot be made, is not the user's, or others can write to it.
    """
    try:
        return made_private(name)
    except OSError as e:
        folder = environment.cache_dir() / name
        if str(folder) not in _refused:
            _refused.add(str(folder))
            log.warning("The cache directory %s is not used: %s", folder, e)
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
