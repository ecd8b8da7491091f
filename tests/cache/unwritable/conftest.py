"""A cache folder of a process in which no folder was refused so far."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torch_max_backend.process import private_folders
from torch_max_backend.registry import kernel_sources


@pytest.fixture(autouse=True)
def folder(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(private_folders, "known", private_folders.Known())
    kernel_sources._precompiled.cache_clear()
    yield private_cache
    kernel_sources._precompiled.cache_clear()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings so far."""
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.fixture
def precompiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where libraries were compiled; in place of the compiler, a file of a few bytes."""
    done: list[Path] = []

    def precompile(sources: Path, out: Path) -> None:
        assert (sources / "__init__.mojo").is_file()
        done.append(out)
        out.write_bytes(b"library")

    monkeypatch.setattr(kernel_sources, "precompile", precompile)
    return done
