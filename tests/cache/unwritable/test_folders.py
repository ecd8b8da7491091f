"""A folder that cannot be written to, for whatever reason, costs a warning and no exception."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.cache.unwritable.broken import ERRORS, PARTS, Broken, each_error, each_step
from torch_max_backend import CacheError, CompilationError, RegistrationError, mojo_op
from torch_max_backend.cache import maintenance, store
from torch_max_backend.process import compile_slots, private_folders
from torch_max_backend.registry import kernel_sources

pytestmark = pytest.mark.xdist_group("compile-1")


def test_writing_elsewhere(folder: Path, warnings: Callable[[], list[str]]) -> None:
    def write(into: Path) -> Path:
        if into.is_relative_to(folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        (into / "file").write_text("")
        return into

    found = private_folders.written_in("things", write)
    assert private_folders.written_in("things", write) == found
    assert private_folders.folder_to_write("things") == found
    assert private_folders.folder_to_write("others") == folder / "others"
    assert len(warnings()) == 1
    shutil.rmtree(found)  # as systems do with what is old
    assert private_folders.folder_to_write("things").is_dir()


def test_without_a_cache_no_folder_of_it_is_made(
    folder: Path, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    found = private_folders.folder_to_write("things")
    assert found.is_dir()
    assert list(folder.iterdir()) == []
    monkeypatch.delenv("TORCH_MAX_BACKEND_CACHE")
    assert private_folders.folder_to_write("things") == folder / "things"
    assert not warnings()


def test_a_forked_child_uses_no_folder_that_its_parent_removes(folder: Path) -> None:
    (folder / "things").write_text("")
    found = private_folders.folder_to_write("things")
    private_folders._in_child()
    assert private_folders.folder_to_write("things") != found


def test_without_a_home(
    warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, precompiled: list[Path]
) -> None:
    from torch_max_backend import environment
    from torch_max_backend.driver.loading import model_place

    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(environment, "cache_dir", fail)
    store.put("key", b"artifact", PARTS)
    assert store.get("key") is None
    assert model_place("key", True) != model_place("key", False)
    assert len(warnings()) == 1
    assert kernel_sources.kernel_library_path("fft.fft").is_file()
    with pytest.raises(CacheError, match="home"):
        store.usable_folder()


@each_error
@each_step
def test_artifacts_are_not_kept(
    error: int,
    step: str,
    folder: Path,
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(store, "listeners", [lambda key, what: told.append(what)])
    Broken(monkeypatch, error, step).folders.append(str(folder))
    for key in ("one", "other"):
        store.put(key, b"artifact", PARTS)
        assert store.get(key) is None
        assert not store.has(key)
        store.discard(key)
        assert store.why_missing(PARTS)
    assert told == ["failed", "failed"]
    (text,) = warnings()
    assert os.strerror(error) in text


@each_error
def test_old_artifacts_that_cannot_be_removed_do_not_matter(
    error: int,
    folder: Path,
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(store, "listeners", [lambda key, what: told.append(what)])
    store.put("old", b"artifact", PARTS)
    monkeypatch.setattr(store, "MAX_BYTES", 1)
    Broken(monkeypatch, error, "unlink").folders.append(str(folder))
    store.put("new", b"artifact", PARTS)
    assert told == ["stored", "stored"]
    assert not warnings()


def test_a_folder_that_cannot_be_read_has_no_artifacts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("key", b"artifact", PARTS)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "listdir", fail)
    monkeypatch.setattr(Path, "exists", fail)
    assert not store.has("key")
    assert store.why_missing(PARTS) == "no artifact of this graph"


@each_error
def test_an_artifact_that_cannot_be_had_from_max(
    error: int, warnings: Callable[[], list[str]]
) -> None:
    from torch_max_backend.engines.max.module import serialized

    def export(path: Path) -> None:
        raise OSError(error, os.strerror(error))

    with pytest.raises(CacheError, match=r"written to a file"):
        serialized(SimpleNamespace(export_mef=export))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [e for e in ERRORS if e != errno.ENOENT])
def test_commands_say_what_they_cannot_remove(
    error: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("one", b"artifact", PARTS)
    Broken(monkeypatch, error, "unlink").folders.append(str(folder))
    for command in (
        lambda: list(maintenance.verify()),
        lambda: maintenance.prune(0),
        maintenance.clear,
    ):
        with pytest.raises(CacheError, match="could not be removed"):
            command()


@each_error
@pytest.mark.parametrize("step", ["open", "replace", "all"])
def test_export_and_import_say_what_they_cannot_write(
    error: int, step: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.cache.transfer import export_cache, import_cache

    file, library = (
        tmp_path / "cache.tar",
        folder / "kernels" / kernel_sources.kernel_library_name(),
    )
    library.parent.mkdir(mode=0o700)
    library.write_bytes(b"library")
    export_cache(file)
    broken = Broken(monkeypatch, error, step)
    broken.folders.append(str(tmp_path))
    with pytest.raises(CacheError):
        export_cache(file)
    broken.folders.clear()
    library.unlink()
    broken.folders.append(str(folder))
    with pytest.raises(CacheError):
        import_cache(file)


@each_error
@pytest.mark.parametrize("step", ["mkdir", "open"])
def test_without_locks_compiling_goes_on(
    error: int, step: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Broken(monkeypatch, error, step).folders.append(str(tmp_path))
    _lock()


def test_without_a_place_for_temporary_files_compiling_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", fail)
    _lock()


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_not_waited_for(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(compile_slots.fcntl, "flock", fail)
    _lock()


def _lock() -> None:
    done = []
    with compile_slots.compile_slot(), compile_slots.alone_on_machine(["place"]):
        done.append(True)
    assert done


@each_error
def test_a_worker_without_temporary_files(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.engines.max.worker import compile_elsewhere

    Broken(monkeypatch, error).folders.append(tempfile.gettempdir())
    module = SimpleNamespace(mlir_module=SimpleNamespace(bytecode=b""))
    with pytest.raises(CompilationError, match="TMPDIR"):
        compile_elsewhere(module, [], "a graph")  # type: ignore[arg-type]


@each_error
@pytest.mark.parametrize("step", ["mkdir", "open"])
def test_dumps_are_left_out(
    error: int,
    step: str,
    tmp_path: Path,
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch_max_backend.driver.compile_files import keep

    into = tmp_path / "dumps"
    monkeypatch.setenv("TORCH_MAX_BACKEND_DUMP", str(into))
    Broken(monkeypatch, error, step).folders.append(str(into))
    job = SimpleNamespace(entry="0123", clock=SimpleNamespace(seconds={}))
    module = SimpleNamespace(mlir_module="module")
    for _ in range(2):
        job.trace = SimpleNamespace(module=torch.fx.symbolic_trace(lambda x: x))
        keep([job], module, lambda: b"artifact")  # type: ignore[list-item]
    (text,) = warnings()
    assert str(into) in text


@each_error
def test_mojo_code_that_cannot_be_written(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Broken(monkeypatch, error).folders.append(tempfile.gettempdir())
    with pytest.raises(RegistrationError, match="TMPDIR"):
        mojo_op("unwritable::a(Tensor x) -> Tensor", "two\nlines", fake=torch.empty_like)


PROGRAM = """
import logging, sys
import torch
from torch_max_backend import max_backend, mojo_op

op = mojo_op("unwritable::add(Tensor x) -> Tensor", sys.argv[1], fake=torch.empty_like,
             kernel="add")
x = torch.arange(4.0)
result = torch.compile(lambda x: op(x), backend=max_backend, options={"fallback": "error"})(x)
assert torch.equal(result, x + 5), result
print("right")
"""


def test_a_full_disk(tmp_path: Path) -> None:
    from tests.cache.test_kernel_sources import kernel

    alone = ["unshare", "--mount", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"]).returncode != 0:
        pytest.skip("no disk can be mounted here")
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "add.mojo").write_text(kernel("add", 5).lstrip())
    (tmp_path / "program.py").write_text(PROGRAM)
    script = f"mount -t tmpfs -o size=64k,mode=0700 none {disk} && exec {sys.executable} "
    script += f"{tmp_path / 'program.py'} {tmp_path / 'add.mojo'}"
    places = {"TORCH_MAX_BACKEND_CACHE_DIR": disk / "ours", "TORCHINDUCTOR_CACHE_DIR": disk / "t"}
    done = subprocess.run(
        [*alone, "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **{name: str(path) for name, path in places.items()}},
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("right\n")
    for name in ("kernels", "artifacts"):
        assert done.stderr.count(str(disk / "ours" / name)) <= 2, done.stderr
    assert "cannot be written to" in done.stderr


def test_a_thread_that_outlives_the_folders_says_nothing(
    folder: Path, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(into: Path) -> Path:
        raise FileNotFoundError(into)

    monkeypatch.setattr(private_folders, "at_exit", lambda: True)
    with pytest.raises(SystemExit):
        private_folders.written_in("things", write)
    assert not warnings()
    assert private_folders.folder_to_write("things") == folder / "things"
