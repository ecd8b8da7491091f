"""Libraries of shells: parsing signatures, building, keeping, repairing and calling them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines.steps.libraries.cases import CUMSUM, DOUBLE, TAKE, files, forget, sums_right
from tests.engines.steps.libraries.test_damage import flip
from torch_max_backend import doctor
from torch_max_backend.__main__ import main
from torch_max_backend.cache import kernel_libraries
from torch_max_backend.engines.steps import building, libraries, standard
from torch_max_backend.engines.steps import runner as runner_module
from torch_max_backend.engines.steps.libraries import addresses, built, exported, provide
from torch_max_backend.engines.steps.runner import RUN, runner
from torch_max_backend.engines.steps.texts import Text
from torch_max_backend.errors import LibraryError

# They share what one of them builds, which takes 10 CPU s.
pytestmark = pytest.mark.xdist_group("step_libraries")


def test_nothing_is_built_twice(cache: Path, builds: list[str]) -> None:
    assert built([CUMSUM])
    assert sums_right()
    assert builds == []


def test_loading_starts_no_thread_and_imports_no_max(cache: Path) -> None:
    code = (
        "import os, sys, torch\n"
        "threads = lambda: len(os.listdir('/proc/self/task'))\n"
        "from torch_max_backend.engines.steps import libraries, runner\n"
        "from torch_max_backend.engines.steps.shells import Instance\n"
        "before = threads()\n"
        "libraries.build = None\n"
        "libraries.addresses([Instance.of('tmb_cumsum', {}, [('float32', 3)] * 2)])\n"
        "runner.runner()\n"
        "print(threads() - before, [m for m in sys.modules if m in ('max.graph', 'max.engine')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0 []", done.stderr


def test_what_is_missing_gets_a_library_of_its_own(
    cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LibraryError, match="that was built does not load"):
        addresses([CUMSUM, DOUBLE])  # what is copied has the first only
    assert len(builds) == 1
    assert DOUBLE.symbol in builds[0]
    assert CUMSUM.symbol not in builds[0]
    with pytest.raises(LibraryError):
        addresses([DOUBLE])
    assert len(builds) == 1  # not tried again
    assert sums_right()


def test_families_share_a_library(
    cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in [*cache.glob("reduction_cumsum-*"), *cache.glob("run-*")]:
        path.unlink()
    monkeypatch.setattr(libraries, "_load", _load_anything)
    provide([CUMSUM, TAKE], [RUN])
    assert len(builds) == 1
    assert all(f"def {name}(" in builds[0] for name in (CUMSUM.symbol, TAKE.symbol, "tmb_run"))
    assert addresses([CUMSUM, TAKE]) == {CUMSUM: 1, TAKE: 1}
    assert exported(RUN) == dict.fromkeys(RUN.symbols, 1)
    assert len(builds) == 1
    assert len(list(cache.glob("several-*.so"))) == 1
    of_cumsum, of_take = (
        kernel_libraries.read(*cache.glob(f"{n}-*.json"))
        for n in ("reduction_cumsum", "indexing_take")
    )
    assert of_cumsum.symbols == {CUMSUM.symbol: str(CUMSUM)}
    assert of_take.symbols == {TAKE.symbol: str(TAKE)}
    assert of_cumsum.file == of_take.file


def test_cores_build_at_once_where_there_is_enough(
    cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_load", _load_anything)
    texts = [Text(f"text{k}", f"# {k}", {f"f{i}": "" for i in range(40)}) for k in range(3)]
    provide((), texts)
    assert sorted(builds) == ["# 0", "# 1", "# 2"]
    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "2")
    provide((), [replace(text, name=f"more_{text.name}") for text in texts])
    assert len(builds) == 5


def _load_anything(need: Any, manifest: kernel_libraries.Manifest) -> str:
    libraries._loaded[need.family, need.key] = dict.fromkeys(manifest.symbols, 1)
    return ""


def test_a_family_that_does_not_build_leaves_the_others(
    cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "1")
    for path in cache.glob("reduction_cumsum-*"):
        path.unlink()
    with pytest.raises(LibraryError, match="that was built does not load"):
        addresses([CUMSUM, TAKE])
    assert len(builds) == 3
    assert sums_right()


def test_two_processes_build_once(cache: Path, warm: Path, tmp_path: Path) -> None:
    (good,) = (warm / "steps").glob("reduction_cumsum-*.so")
    for path in cache.glob("reduction_cumsum-*"):
        path.unlink()
    log = tmp_path / "builds"
    code = (
        "import os, shutil, sys, time\n"
        "from torch_max_backend.engines.steps import libraries\n"
        "from torch_max_backend.engines.steps.shells import Instance\n"
        "def build(main, out, include, defines, features=(), threads=0):\n"
        f"    open({str(log)!r}, 'a').write('x')\n"
        "    time.sleep(1)\n"
        f"    shutil.copy({str(good)!r}, out)\n"
        "libraries.build = build\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "libraries.addresses([Instance.of('tmb_cumsum', {}, [('float32', 3)] * 2)])\n"
        "print('done')\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        assert [process.communicate(timeout=120)[0] for process in started] == ["done\n"] * 2
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert log.read_text() == "x"
    assert not list(cache.glob(".partial-*"))


def test_a_cache_that_cannot_be_made_costs_a_warning(
    tmp_path: Path,
    builds: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(tmp_path / "file" / "cache"))
    forget(monkeypatch)
    addresses([CUMSUM])
    assert len(builds) == 1
    assert sum("is not used" in r.getMessage() for r in caplog.records) == 1


def test_a_full_disk_costs_a_warning(
    cache: Path,
    builds: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for path in cache.glob("reduction_cumsum-*"):
        path.unlink()
    write = kernel_libraries._write

    def full(path: Path, content: bytes) -> None:
        if path.parent == cache:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(kernel_libraries, "_write", full)
    addresses([CUMSUM])
    assert len(builds) == 2  # once on each disk
    assert sum("No space left" in r.getMessage() for r in caplog.records) == 1
    assert kernel_libraries.folder() != cache
    assert list(kernel_libraries.folder().glob("reduction_cumsum-*.json"))


def test_without_a_cache(
    private_cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    forget(monkeypatch)
    addresses([CUMSUM])
    assert len(builds) == 1
    assert not (private_cache / "steps").exists()


def test_without_mojo(private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setattr(building.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryError, match="The Mojo compiler could not be started"):
        addresses([CUMSUM])
    with pytest.raises(LibraryError, match="The Mojo compiler could not be started"):
        runner()


def test_what_the_compiler_says_is_in_the_error(
    private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    mojo = tmp_path / "mojo"
    mojo.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 3\n")
    mojo.chmod(0o700)
    monkeypatch.setattr(building.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(LibraryError, match=r"exit status 3\).\nno such thing"):
        addresses([CUMSUM])


def test_calls_of_max_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mojo = tmp_path / "mojo"
    mojo.write_text(f"#!/bin/sh\nprintf 'x\\0AsyncRT_thing\\0y' > {tmp_path}/out.so\n")
    mojo.chmod(0o700)
    monkeypatch.setattr(building.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(LibraryError, match="only works inside of a MAX graph: AsyncRT_thing"):
        building.build(tmp_path / "main.mojo", tmp_path / "out.so", tmp_path, {})


def test_libraries_on_the_command_line(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "library of reduction_cumsum  1 kernel" in lines[0]
    assert lines[-1].startswith("2 libraries of kernels, 0.")
    assert main(["cache", "verify"]) == 0
    library, manifest = files(cache)
    flip(library, manifest)
    capsys.readouterr()
    assert main(["cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert f"{manifest.name} removed: its checksum is wrong" in out
    assert "1 library of kernels damaged" in out
    assert not library.exists()
    monkeypatch.setattr(standard, "build_standard", lambda: [])
    assert main(["cache", "warm", "--libraries"]) == 0
    assert "0 libraries of kernels, 0 functions" in capsys.readouterr().err
    assert main(["cache", "warm"]) == 2
    assert main(["cache", "clear"]) == 0
    assert not list(cache.glob("*.json"))


def test_doctor_tells_of_libraries(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = doctor._libraries(True)
    assert told.state == "ok"
    assert told.found.startswith("attention.forward, gemm.matmul, ")
    assert told.found.endswith(" will be built when they are first needed")
    assert "cache warm --libraries" in told.advice
    monkeypatch.setattr(standard, "_STANDARD", [("tmb_cumsum", {})])
    (told,) = doctor._libraries(False)
    assert told.found == "what most models need is built"

    def fails() -> None:
        raise LibraryError("No compiler.", "Install one.")

    monkeypatch.setattr(runner_module, "runner", fails)
    (told,) = doctor._libraries(True)
    assert (told.state, told.found, told.advice) == ("wrong", "No compiler.", "Install one.")


def test_what_was_not_used_for_long_goes(cache: Path) -> None:
    library, manifest = files(cache)
    key = kernel_libraries.read(manifest).key
    os.utime(manifest, (10_000, 10_000))
    os.utime(library, (10_000, 10_000))
    kernel_libraries.tidy(cache, {key})
    assert manifest.exists()
    assert library.exists()
    kernel_libraries.tidy(cache, set())
    assert not manifest.exists()
    assert not library.exists()
    assert list(cache.glob("run-*.so"))
    orphan, partial = cache / "gemm-0.so", cache / ".partial-x"
    orphan.write_text("")
    partial.mkdir()
    kernel_libraries.tidy(cache, set())
    assert orphan.exists()
    assert partial.exists()
    os.utime(orphan, (10_000, 10_000))
    os.utime(partial, (10_000, 10_000))
    kernel_libraries.tidy(cache, set())
    assert not orphan.exists()
    assert not partial.exists()
