"""Precompiled kernels where their folder cannot be written to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.unwritable.broken import Broken, each_error, each_step
from torch_max_backend import CacheError, CompilationError
from torch_max_backend.registry import kernel_sources


@each_error
@each_step
def test_kernels_are_kept_elsewhere(
    error: int,
    step: str,
    folder: Path,
    tmp_path: Path,
    precompiled: list[Path],
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path / "own.mojo"
    own.write_text("")
    Broken(monkeypatch, error, step).folders.append(str(folder))
    found = [kernel_sources.kernel_library_path(library) for library in (own, "fft.fft", own)]
    for path in found:
        assert path.read_bytes() == b"library"
        assert not path.is_relative_to(folder)
    (text,) = warnings()
    assert str(folder) in text
    assert os.strerror(error) in text
    kept = [out for out in precompiled if not out.is_relative_to(folder)]
    assert len(kept) == 2
    assert len(precompiled) <= 3  # the folder was not tried again


def test_kernels_return_to_a_folder_that_can_be_used_again(
    folder: Path, precompiled: list[Path], warnings: Callable[[], list[str]]
) -> None:
    (folder / "kernels").mkdir(mode=0o755)
    assert not kernel_sources.kernel_library_path("fft.fft").is_relative_to(folder)
    (folder / "kernels").chmod(0o700)
    assert kernel_sources.kernel_library_path("image.resample").is_relative_to(folder)
    assert len(warnings()) == 1


def test_a_library_that_is_gone_is_compiled_again(
    folder: Path, precompiled: list[Path], warnings: Callable[[], list[str]]
) -> None:
    found = kernel_sources.kernel_library_path("fft.fft")
    assert kernel_sources.kernel_library_path("fft.fft") == found
    shutil.rmtree(folder)
    assert kernel_sources.kernel_library_path("fft.fft").read_bytes() == b"library"
    assert len(precompiled) == 2
    assert not warnings()


@each_error
def test_a_compiler_that_cannot_write_is_no_error_of_the_sources(
    error: int,
    folder: Path,
    precompiled: list[Path],
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    working = kernel_sources.precompile
    full = False

    def precompile(sources: Path, out: Path) -> None:
        nonlocal full
        if out.is_relative_to(folder):
            full = True
            raise CompilationError("LLVM ERROR: IO failure on output stream")
        working(sources, out)

    def fsync(handle: int) -> None:
        if full:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(kernel_sources, "precompile", precompile)
    monkeypatch.setattr(os, "fsync", fsync)
    assert kernel_sources.kernel_library_path("fft.fft").read_bytes() == b"library"
    assert len(warnings()) == 1


def test_an_error_of_the_sources_is_one(
    folder: Path, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def precompile(sources: Path, out: Path) -> None:
        raise CompilationError("expected argument name")

    monkeypatch.setattr(kernel_sources, "precompile", precompile)
    with pytest.raises(CompilationError, match="expected argument name"):
        kernel_sources.kernel_library_path("fft.fft")
    assert not warnings()
    assert list((folder / "kernels").iterdir()) == []


@each_error
def test_where_nothing_can_be_written_the_error_is_ours(
    error: int, folder: Path, precompiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    Broken(monkeypatch, error).folders += [str(folder), tempfile.gettempdir()]
    with pytest.raises(CacheError, match="TMPDIR"):
        kernel_sources.kernel_library_path("fft.fft")
