"""The libraries of kernels of the steps engine, for tests with a cache directory of their own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.home import HOME
from torch_max_backend.cache.kernel_libraries import FOLDER

_ORIGINAL = HOME / FOLDER


@contextlib.contextmanager
def lent(cache: Path) -> Iterator[None]:
    """In the body, a cache directory has the libraries that were built already; what is built in it
    is kept for the next test."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _copy(_ORIGINAL, cache / FOLDER)
    try:
        yield
    finally:
        _copy(cache / FOLDER, _ORIGINAL)


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir():
        return
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A manifest tells that its library is there, so libraries come first.
    for suffix in (".so", ".json"):
        for path in source.glob(f"*{suffix}"):
            if not (target / path.name).exists():
                made = target / f".partial-{secrets.token_hex(8)}"
                with contextlib.suppress(FileNotFoundError):  # another process tidies
                    shutil.copy2(path, made)
                    os.replace(made, target / path.name)
