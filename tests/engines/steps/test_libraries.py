"""Libraries of shells: parsing signatures, building, keeping, repairing and calling them."""

from __future__ import annotations

import ctypes.util
import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_max_backend import doctor
from torch_max_backend.__main__ import main
from torch_max_backend.cache import kernel_libraries
from torch_max_backend.engines.steps import building, families, libraries
from torch_max_backend.engines.steps.libraries import addresses, built, runner
from torch_max_backend.engines.steps.shells import Instance, shells_text, unavailable
from torch_max_backend.engines.steps.signatures import (
    Argument,
    Parameter,
    Signature,
    Unavailable,
    kernels,
    parse,
    signature,
)
from torch_max_backend.engines.steps.sources import write_users
from torch_max_backend.errors import LibraryError
from torch_max_backend.process import private_folders

# They share what one of them builds, which takes 10 CPU s.
pytestmark = pytest.mark.xdist_group("step_libraries")

TAKE = Instance.of("tmb_take", {}, [("float32", 3), ("float32", 3), ("int64", 1)])
CUMSUM = Instance.of("tmb_cumsum", {}, [("float32", 3), ("float32", 3)])
DOUBLE = Instance.of("tmb_cumsum", {}, [("float64", 3), ("float64", 3)])
INTEGER = ("int64", 0)
GEMM = [("float32", 3), ("float32", 3), ("float32", 3), ("float32", 1), *[INTEGER] * 4]


def _forget(patch: pytest.MonkeyPatch) -> None:
    """Make this process one that has loaded nothing, and waits for no compile of others."""
    patch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "64")
    for name in ("_loaded", "_addresses", "_failed"):
        patch.setattr(libraries, name, {})
    for name, empty in (("_refused", set()), ("_unwritable", set()), ("_instead", {})):
        patch.setattr(private_folders, name, empty)
    runner.cache_clear()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the loop and a cumulative sum, built where PATH has no C compiler."""
    folder = tmp_path_factory.mktemp("libraries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(folder))
        patch.delenv("TORCH_MAX_BACKEND_CACHE", raising=False)
        patch.setenv("PATH", str(folder / "nothing"))
        _forget(patch)
        assert not built([CUMSUM])
        addresses([CUMSUM])
        runner()
        assert built([CUMSUM])
    runner.cache_clear()
    return folder


@pytest.fixture
def cache(private_cache: Path, warm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that, for a process that has loaded nothing."""
    shutil.copytree(warm / "steps", private_cache / "steps")
    (private_cache / "steps").chmod(0o700)
    _forget(monkeypatch)
    return private_cache / "steps"


@pytest.fixture
def builds(warm: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The main files of what was built since: each build copies the library that is there."""
    (good,) = (warm / "steps").glob("reduction_cumsum-*.so")
    found: list[str] = []

    def fake(main: Path, out: Path, include: Path, defines: object, features: object = ()) -> None:
        found.append(main.read_text())
        shutil.copy(good, out)

    monkeypatch.setattr(libraries, "build", fake)
    return found


def _row(wanted: Instance, *tensors: torch.Tensor) -> list[int]:
    words = [addresses([wanted])[wanted], wanted.words]
    for tensor in tensors:
        words += [tensor.data_ptr(), *tensor.shape, *tensor.stride()]
    assert len(words) == wanted.words
    return words


def _run(rows: list[list[int]]) -> tuple[int, str]:
    """What the loop returns for rows, and the text of what failed."""
    table = torch.tensor([word for row in rows for word in row])
    text = torch.zeros(200, dtype=torch.uint8)
    context = torch.tensor([text.data_ptr(), 200, 0])
    failed = runner()(table.data_ptr(), len(rows), context.data_ptr())
    return failed, bytes(text[: int(context[2])].tolist()).decode()


def _files(cache: Path) -> tuple[Path, Path]:
    """The library of the cumulative sum, and its manifest."""
    (library,), (manifest,) = (cache.glob(f"reduction_cumsum-*.{end}") for end in ("so", "json"))
    return library, manifest


def _sums_right() -> bool:
    x = torch.randn(3, 70, 5)
    y = torch.empty_like(x)
    assert _run([_row(CUMSUM, y, x)]) == (-1, "")
    return torch.allclose(y, x.cumsum(1), atol=1e-5)


def test_every_kernel_has_a_signature() -> None:
    found = [signature(kernel) for kernel in kernels()]
    assert {s.kernel: s.reason for s in found if isinstance(s, Unavailable)} == {}
    assert len(found) > 90
    gemm = signature("tmb_matmul")
    assert isinstance(gemm, Signature)
    assert (gemm.module, gemm.struct, gemm.raises) == ("gemm.matmul", "Matmul", True)
    assert gemm.parameters == (
        Parameter("activation", "StaticString", False),
        Parameter("precision", "StaticString", True),
    )
    assert gemm.inferred == ("dtype", "right_type")
    assert gemm.arguments[0] == Argument("output", "output", "dtype", "3")
    assert gemm.arguments[4] == Argument("routine", "scalar", "DType.int64", "")
    assert gemm.calls[-1] == ""
    check = signature("tmb_check_info")
    assert isinstance(check, Signature)
    assert [a.kind for a in check.arguments] == ["mutable", "input"]
    concat = signature("tmb_concat")
    assert isinstance(concat, Signature)
    assert [a.kind for a in concat.arguments] == ["output", "list"]


def _parsed(execute: str) -> Signature | Unavailable:
    text = f'@register("k")\nstruct K:\n    """A kernel."""\n\n    @staticmethod\n{execute}\n'
    (found,) = parse(text, "m")
    return found


def test_signatures_of_others() -> None:
    found = _parsed(
        "    def execute[t: DType, //, axis: Int, how: Bool = False, target: StaticString](\n"
        "        y: OutputTensor[dtype=t, rank=2, ...],  # the sum, of x\n"
        "        imm by: Scalar[t], n: Int32, on: Bool,\n"
        "        x: InputTensor[dtype=y.dtype, rank=y.rank, ...],\n"
        "    ):\n        pass"
    )
    assert isinstance(found, Signature)
    assert found.parameters == (Parameter("axis", "Int", False), Parameter("how", "Bool", True))
    assert [(a.name, a.kind, a.dtype, a.rank) for a in found.arguments] == [
        ("y", "output", "t", "2"),
        ("by", "scalar", "t", ""),
        ("n", "scalar", "DType.int32", ""),
        ("on", "scalar", "DType.bool", ""),
        ("x", "input", "y.dtype", "y.rank"),
    ]
    assert found.calls == ("y", "by", "n", "on", "x")
    assert not found.raises


@pytest.mark.parametrize(
    ("execute", "reason"),
    [
        ("    def shape(x: Int):\n        pass", "it has no method `execute`"),
        (
            "    def execute(x: OutputTensor) -> Int:\n        pass",
            "its `execute` returns something",
        ),
        ("    def execute(x: OutputTensor, *y: Int):", "its argument `y` is any number of tensors"),
        ("    def execute(x: OutputTensor, s: String):", "its argument `s` has the type String"),
        ("    def execute(x: InputTensor, n: Int64):", "it writes to no tensor"),
        ("    def execute[f: Shape](x: OutputTensor):", "its parameter `f` has the type Shape"),
        (
            "    def execute(x: OutputTensor[static_spec=s]):",
            "the type of its argument `x` is OutputTensor[static_spec=s]",
        ),
        ("    def execute(x: OutputTensor", "its `execute` has a bracket that does not close"),
    ],
)
def test_what_cannot_be_parsed_has_a_reason(execute: str, reason: str) -> None:
    assert _parsed(execute) == Unavailable("k", "m", reason)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Instance.of("tmb_matmul", {"activation": "relu"}, GEMM), ""),
        (Instance.of("tmb_concat", {"axis": 0}, [("int8", 2)] * 5), ""),
        (Instance.of("mine", {}, []), "there is no kernel 'mine'"),
        (Instance.of("tmb_matmul", {}, GEMM), "its parameter `activation` is not given"),
        (Instance.of("tmb_cumsum", {"axis": 1}, CUMSUM.operands), "it has no parameter `axis`"),
        (Instance.of("tmb_cumsum", {}, [("int8", 3)]), "it takes 2 operands, not 1"),
        (
            Instance.of("tmb_cumsum", {}, [("int8", 3), ("int8", 2)]),
            "`x` has to have rank 3, not 2",
        ),
        (
            Instance.of("tmb_cumsum", {}, [("int8", 3), ("int32", 3)]),
            "`x` has to be int8, not int32",
        ),
        (Instance.of("tmb_cumsum", {}, [("a b", 3)] * 2), "`output` cannot be a b of rank 3"),
        (
            Instance.of("tmb_bits", {"kind": "and"}, [("int8", 1), ("int8", 1), ("int8", 0)]),
            "`y` has to have rank 1, not 0",
        ),
    ],
)
def test_reasons_for_no_shell(wanted: Instance, reason: str) -> None:
    assert unavailable(wanted) == reason
    if reason:
        with pytest.raises(LibraryError, match="has no shell"):
            shells_text([wanted])


def test_text_of_a_shell() -> None:
    assert CUMSUM.symbol == Instance.of("tmb_cumsum", (), CUMSUM.operands).symbol
    assert CUMSUM.symbol != DOUBLE.symbol
    assert CUMSUM.symbol.startswith("tmb_cumsum_")
    wanted = Instance.of("tmb_check_info", {"text": 'a "b"\n', "single": True}, [("int32", 1)] * 2)
    text = shells_text([wanted])
    assert f'@export("{wanted.symbol}")' in text
    assert 'single=True, text="a \\"b\\"\\n", target="cpu"' in text
    assert text == shells_text([wanted])


def test_standard_instances_have_shells() -> None:
    found = [i for family in families.standard_families() for i in families.standard(family)]
    assert {i: unavailable(i) for i in found} == dict.fromkeys(found, "")
    assert Instance.of("tmb_matmul", {"activation": "silu"}, GEMM) in found


def test_kernels_compute_what_torch_does(cache: Path) -> None:
    assert _sums_right()
    x = torch.randn(2, 9, 3)
    first, second = torch.empty_like(x), torch.empty_like(x)
    assert _run([_row(CUMSUM, first, x), _row(CUMSUM, second, first)]) == (-1, "")
    torch.testing.assert_close(second, x.cumsum(1).cumsum(1))


def test_a_wrong_row_is_told(cache: Path) -> None:
    x = torch.randn(2, 9, 3)
    y = torch.empty_like(x)  # a row keeps no tensor alive
    right = _row(CUMSUM, y, x)
    wrong = [right[0], len(right) + 1, *right[2:], 0]
    assert _run([right, wrong, right]) == (1, f"A row of tmb_cumsum has {len(right)} words")


def test_timed_loop(cache: Path) -> None:
    x = torch.randn(2, 9, 3)
    y = torch.empty_like(x)
    row = _row(CUMSUM, y, x)
    table, ticks = torch.tensor(row * 3), torch.zeros(4, dtype=torch.int64)
    context = torch.zeros(3, dtype=torch.int64)
    found = runner(timed=True)(table.data_ptr(), 3, context.data_ptr(), ticks.data_ptr())
    assert found == -1
    assert (ticks[:3] > 0).all()
    assert ticks[3] == 0


def test_nothing_is_built_twice(cache: Path, builds: list[str]) -> None:
    assert built([CUMSUM])
    assert _sums_right()
    assert builds == []


def test_loading_starts_no_thread_and_imports_no_max(cache: Path) -> None:
    code = (
        "import os, sys, torch\n"
        "threads = lambda: len(os.listdir('/proc/self/task'))\n"
        "from torch_max_backend.engines.steps import libraries\n"
        "from torch_max_backend.engines.steps.shells import Instance\n"
        "before = threads()\n"
        "libraries.build = None\n"
        "libraries.addresses([Instance.of('tmb_cumsum', {}, [('float32', 3)] * 2)])\n"
        "libraries.runner()\n"
        "print(threads() - before, [m for m in sys.modules if m in ('max.graph', 'max.engine')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0 []", done.stderr


def _truncate(library: Path, manifest: Path) -> None:
    library.write_bytes(library.read_bytes()[:1000])


def _flip(library: Path, manifest: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 0xFF
    library.write_bytes(bytes(content))


def _foreign(library: Path, manifest: Path) -> None:
    """A whole file that is no library of these kernels."""
    shutil.copy(ctypes.util.__file__, library)
    _resign(library, manifest)


def _empty(library: Path, manifest: Path) -> None:
    library.write_bytes(b"")
    _resign(library, manifest)


def _without_symbols(library: Path, manifest: Path) -> None:
    (other,) = library.parent.glob("run-*.so")
    shutil.copy(other, library)
    _resign(library, manifest)


def _resign(library: Path, manifest: Path) -> None:
    import hashlib

    content = json.loads(manifest.read_text())
    content["sha256"] = hashlib.sha256(library.read_bytes()).hexdigest()
    content["library"] = f"cumsum-{content['sha256'][:24]}.so"
    library.rename(library.with_name(content["library"]))
    manifest.write_text(json.dumps(content))


def _no_library(library: Path, manifest: Path) -> None:
    library.unlink()


def _no_manifest(library: Path, manifest: Path) -> None:
    manifest.unlink()


def _bad_manifest(library: Path, manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:50])


def _other_manifest(library: Path, manifest: Path) -> None:
    (other,) = library.parent.glob("run-*.json")
    shutil.copy(other, manifest)


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _foreign,
        _empty,
        _without_symbols,
        _no_library,
        _no_manifest,
        _bad_manifest,
        _other_manifest,
    ],
)
def test_what_is_damaged_is_built_again(
    cache: Path,
    builds: list[str],
    damage: Callable[[Path, Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    library, manifest = _files(cache)
    damage(library, manifest)
    with caplog.at_level(logging.WARNING, "torch_max_backend.steps"):
        assert _sums_right()
    assert len(builds) == 1
    assert bool(caplog.records) == (damage is not _no_manifest)
    assert built([CUMSUM])


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
    assert _sums_right()


def test_first_library_holds_the_standard_kernels(
    cache: Path,
    builds: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(libraries, "standard", lambda family: [DOUBLE])
    addresses([CUMSUM])
    assert builds == []
    (manifest,) = cache.glob("reduction_cumsum-*.json")
    manifest.unlink()
    _forget(monkeypatch)
    # The copy lacks one of the two, so the standard ones are left out.
    assert _sums_right()
    assert [DOUBLE.symbol in text for text in builds] == [True, False]
    assert "Only what is needed at once is built of reduction_cumsum" in caplog.text


def test_families_share_a_library(
    cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "1")
    for path in cache.glob("reduction_cumsum-*"):
        path.unlink()
    monkeypatch.setattr(libraries, "_load", _load_anything)
    found = addresses([CUMSUM, TAKE])
    assert len(builds) == 1
    assert all(f"def {i.symbol}(" in builds[0] for i in (CUMSUM, TAKE))
    assert found == {CUMSUM: 1, TAKE: 1}
    assert len(list(cache.glob("several-*.so"))) == 1
    of_cumsum, of_take = (
        kernel_libraries.read(*cache.glob(f"{n}-*.json"))
        for n in ("reduction_cumsum", "indexing_take")
    )
    assert of_cumsum.symbols == {CUMSUM.symbol: str(CUMSUM)}
    assert of_take.symbols == {TAKE.symbol: str(TAKE)}
    assert of_cumsum.file == of_take.file


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
    assert _sums_right()


def test_two_processes_build_once(cache: Path, warm: Path, tmp_path: Path) -> None:
    (good,) = (warm / "steps").glob("reduction_cumsum-*.so")
    for path in cache.glob("reduction_cumsum-*"):
        path.unlink()
    log = tmp_path / "builds"
    code = (
        "import os, shutil, sys, time\n"
        "from torch_max_backend.engines.steps import libraries\n"
        "from torch_max_backend.engines.steps.shells import Instance\n"
        "def build(main, out, include, defines, features=()):\n"
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
    _forget(monkeypatch)
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
    _forget(monkeypatch)
    addresses([CUMSUM])
    assert len(builds) == 1
    assert not (private_cache / "steps").exists()


def test_without_mojo(private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _forget(monkeypatch)
    monkeypatch.setattr(building.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryError, match="The Mojo compiler could not be started"):
        addresses([CUMSUM])
    with pytest.raises(LibraryError, match="The Mojo compiler could not be started"):
        runner()


def test_what_the_compiler_says_is_in_the_error(
    private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget(monkeypatch)
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


USERS = """\
from extensibility import InputTensor, OutputTensor, foreach, register
from layout import Coord
from max.algorithm import (
    sync_parallelize,
    elementwise,  # not ours
)
from max.gpu.host import DeviceContext

@register("mine_scale")
struct Scale:
    @staticmethod
    def execute[times: Int, target: StaticString](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        by: Float32,
        ctx: DeviceContext,
    ) raises:
        if by == 0:
            raise Error("by is 0")

        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var by} -> SIMD[output.dtype, width]:
            return x.load[width](at) * by.cast[output.dtype]() * SIMD[output.dtype, width](times)

        foreach[target=target](body, output, ctx)
"""


def test_user_defined_kernels_take_our_threads(tmp_path: Path) -> None:
    source = tmp_path / "mine.mojo"
    source.write_text(USERS)
    write_users(source, tmp_path / "kernels")
    lines = (tmp_path / "kernels" / "mine.mojo").read_text().splitlines()
    assert lines[:6] == [
        "from tmb_support.core.each import foreach",
        "from extensibility import InputTensor, OutputTensor, register",
        "from layout import Coord",
        "from tmb_support.core.team import sync_parallelize",
        "from max.algorithm import elementwise",
        "from max.gpu.host import DeviceContext",
    ]
    assert (tmp_path / "tmb_support" / "core" / "team.mojo").is_file()
    assert source.read_text() == USERS


@pytest.mark.thorough
def test_user_defined_kernel(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.mojo"
    source.write_text(USERS)
    operands = [("float32", 2), ("float32", 2), ("float32", 0)]
    wanted = Instance.of("mine_scale", {"times": 3}, operands, source)
    x = torch.randn(50, 1000)[:, ::2]
    y, by = torch.empty(50, 500), torch.tensor(2.0)
    assert _run([_row(wanted, y, x, by)]) == (-1, "")
    torch.testing.assert_close(y, x * 6)
    by.zero_()
    assert _run([_row(wanted, y, x, by)]) == (0, "by is 0")


def test_libraries_on_the_command_line(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "library of reduction_cumsum  1 kernel" in lines[0]
    assert lines[-1].startswith("2 libraries of kernels, 0.")
    assert main(["cache", "verify"]) == 0
    library, manifest = _files(cache)
    _flip(library, manifest)
    capsys.readouterr()
    assert main(["cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert f"{manifest.name} removed: its checksum is wrong" in out
    assert "1 library of kernels damaged" in out
    assert not library.exists()
    monkeypatch.setattr(libraries, "build_standard", lambda: [])
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
    monkeypatch.setattr(families, "_STANDARD", {"reduction.cumsum": [("tmb_cumsum", {})]})
    (told,) = doctor._libraries(False)
    assert told.found == "the 1 that most models need are built"

    def fails() -> None:
        raise LibraryError("No compiler.", "Install one.")

    monkeypatch.setattr(libraries, "runner", fails)
    (told,) = doctor._libraries(True)
    assert (told.state, told.found, told.advice) == ("wrong", "No compiler.", "Install one.")


def test_what_was_not_used_for_long_goes(cache: Path) -> None:
    library, manifest = _files(cache)
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
