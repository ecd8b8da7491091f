"""Temporary folders, which the process that made them removes at its end, and no forked child."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

_PREFIX = "torch_max_backend-"


def folder_until_exit() -> Path:
    """A new folder for as long as the process runs."""
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


@contextmanager
def temporary_folder(prefix: str = _PREFIX, parent: Path | None = None) -> Iterator[Path]:
    """A new folder for the body.

    Args:
        prefix: What its name begins with.
        parent: Where it is made; by default where temporary files are.
    """
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    remove = partial(_remove, folder, os.getpid())
    atexit.register(remove)
    try:
        yield Path(folder)
    finally:
        atexit.unregister(remove)
        remove()


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
