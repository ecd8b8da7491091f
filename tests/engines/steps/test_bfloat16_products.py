"""Products of bfloat16 by the instructions of CPUs, those of others emulated."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torch_max_backend.ops  # noqa: F401  registers the lowerings
from torch_max_backend.driver.autograd_cache import tag
from torch_max_backend.driver.passes import prepare
from torch_max_backend.engines.steps import instructions, libraries
from torch_max_backend.engines.steps.plan_text import text_of
from torch_max_backend.engines.steps.planned import planned
from torch_max_backend.engines.steps.texts import Text
from torch_max_backend.options import Options
from torch_max_backend.registry.kernel_sources import family_sources, write_modules

_HEAD = """\
from kernels.core.memory import untracked
from kernels.gemm.bfloat16 import DEPTH, SIDE, Dots, Half, Registers, Single, Tiles
from kernels.gemm.bfloat16 import product_of_pairs
from kernels.gemm.panels import Matrix
from std.memory import Pointer

comptime Sizes = Pointer[Int64, MutAnyOrigin]


struct Emulated(Registers):
    \"\"\"Tiles in memory.\"\"\"

    var pairs: List[BFloat16]
    var sums: List[Float32]

    def __init__(out self):
        self.pairs = List[BFloat16](length=8 * SIDE * DEPTH, fill=0)
        self.sums = List[Float32](length=8 * SIDE * SIDE, fill=0)

    def zero[tile: Int](mut self):
        for i in range(SIDE * SIDE):
            self.sums[tile * SIDE * SIDE + i] = 0

    def load[tile: Int](mut self, source: Half, stride: Int):
        for i in range(SIDE):
            for p in range(DEPTH):
                var number = source[unsafe_offset = i * stride // 2 + p]
                self.pairs[(tile * SIDE + i) * DEPTH + p] = number

    def multiply[to: Int, left: Int, right: Int](mut self):
        for i in range(SIDE):
            for p in range(0, DEPTH, 2):
                for j in range(SIDE):
                    for half in range(2):
                        var a = self.pairs[(left * SIDE + i) * DEPTH + p + half]
                        var b = self.pairs[(right * SIDE + p // 2) * DEPTH + 2 * j + half]
                        self.sums[(to * SIDE + i) * SIDE + j] += a.cast[DType.float32]() * b.cast[
                            DType.float32
                        ]()

    def store[tile: Int](mut self, to: Single, stride: Int):
        for i in range(SIDE):
            for j in range(SIDE):
                to[unsafe_offset = i * stride // 4 + j] = self.sums[(tile * SIDE + i) * SIDE + j]

    def close(mut self):
        pass


"""
_ONE = """\
@export("test_{name}")
def test_{name}(a: {source}, b: {source}, c: Single, n: Sizes) abi("C"):
    product_of_pairs[{unit}](
        Int(n[unsafe_offset=0]),
        Int(n[unsafe_offset=1]),
        Int(n[unsafe_offset=2]),
        Matrix(a, Int(n[unsafe_offset=3]), Int(n[unsafe_offset=4])),
        Matrix(b, Int(n[unsafe_offset=5]), Int(n[unsafe_offset=6])),
        c,
        Int(n[unsafe_offset=7]),
        n[unsafe_offset=8] != 0,
    )
"""
_TAPS = """\
from kernels.convolution.pair_tiles import pack_pair_lines, padded_depth
from kernels.convolution.pair_tiles import product_of_tiles, tiles_space


@export("test_taps")
def test_taps(weights: Half, right: Single, offsets: Sizes, c: Single, n: Sizes) abi("C"):
    var rows = Int(n[unsafe_offset=0])
    var channels = Int(n[unsafe_offset=2])
    var taps = Int(n[unsafe_offset=3])
    var depth = (channels + 1) // 2 * taps
    var lines = List[Float32](length=(rows + 16) * padded_depth(depth) + 16, fill=0)
    var space = List[Float32](length=tiles_space(depth, Int(n[unsafe_offset=1])), fill=0)
    pack_pair_lines(untracked(lines.unsafe_ptr()), weights, channels * taps, rows, channels, taps)
    product_of_tiles[Tiles[Emulated]](
        rows,
        Int(n[unsafe_offset=1]),
        depth,
        untracked(lines.unsafe_ptr()),
        padded_depth(depth),
        right,
        untracked(offsets.unsafe_bitcast[Int]()),
        untracked(space.unsafe_ptr()),
        c,
        Int(n[unsafe_offset=4]),
        n[unsafe_offset=5] != 0,
    )
    _ = lines^
    _ = space^
"""
_UNITS = {"tiles": "Tiles[Emulated]", "dots": "Dots"}
_SOURCES = {torch.bfloat16: "Half", torch.float32: "Single"}


def _function(unit: str, dtype: torch.dtype | None) -> Callable[..., None]:
    names = {d: f"test_{unit}_{source.lower()}" for d, source in _SOURCES.items()}
    shells = [
        _ONE.format(name=names[d].removeprefix("test_"), unit=_UNITS[unit], source=source)
        for d, source in _SOURCES.items()
    ]
    symbols = [*names.values()]
    modules = ["gemm.bfloat16"]
    if unit == "tiles":
        shells.append(_TAPS)
        symbols.append("test_taps")
        modules.append("convolution.pair_tiles")
    text = _HEAD + "\n\n".join(shells)
    found = libraries.exported(Text(f"test_{unit}", text, {n: n for n in symbols}, modules))
    name = "test_taps" if dtype is None else names[dtype]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (5 if dtype is None else 4))(found[name])


@pytest.mark.parametrize("dtype", _SOURCES)
@pytest.mark.parametrize("unit", _UNITS)
def test_products(unit: str, dtype: torch.dtype) -> None:
    if unit == "dots" and "avx512_bf16" not in instructions.flags():
        pytest.skip("this CPU has no dot products of bfloat16")
    function = _function(unit, dtype)
    torch.manual_seed(0)
    sizes = [(9, 9, 32), (16, 48, 64), (33, 70, 100), (130, 31, 1024 + 40), (300, 65, 33)]
    for m, n, k in sizes:
        for turned_a in (False, True):
            for turned_b in (False, True):
                a = torch.randn(k, m).to(dtype).T if turned_a else torch.randn(m, k).to(dtype)
                b = torch.randn(n, k).to(dtype).T if turned_b else torch.randn(k, n).to(dtype)
                for added in (False, True):
                    # A frame around the result that nothing may write to.
                    whole = torch.full((m + 2, n + 3), 7.0)
                    part = whole[1:-1, 1:-2]
                    part.copy_(torch.randn(m, n))
                    exact = a.bfloat16().double() @ b.bfloat16().double()
                    expected = exact + (part if added else 0)
                    strides = (*a.stride(), *b.stride(), whole.stride(0), added)
                    call = torch.tensor([m, n, k, *strides])
                    function(a.data_ptr(), b.data_ptr(), part.data_ptr(), call.data_ptr())
                    torch.testing.assert_close(part.double(), expected, atol=1e-3, rtol=1e-4)
                    assert (whole.sum() - part.sum() - 7 * (whole.numel() - part.numel())).abs() < 1


@pytest.mark.parametrize(
    ("rows", "columns", "channels", "taps"),
    [(37, 45, 5, 3), (16, 32, 32, 1), (7, 3, 2, 9), (50, 17, 31, 4)],
)
def test_products_of_taps(rows: int, columns: int, channels: int, taps: int) -> None:
    function = _function("tiles", None)
    torch.manual_seed(0)
    pairs, size = (channels + 1) // 2, columns + taps
    weights = torch.randn(rows, channels, taps).bfloat16()
    planes = torch.randn(pairs, size, 2).bfloat16()
    planes[channels // 2 :, :, 1] = 0
    offsets = torch.tensor([p * size + t for p in range(pairs) for t in range(taps)])
    # A frame around the result that nothing may write to.
    whole = torch.full((rows, columns + 20), 7.0)
    part = whole[:, :columns]
    numbers = planes.double().transpose(1, 2).reshape(2 * pairs, size)[:channels]
    windows = numbers.unfold(1, columns, 1)[:, :taps]
    exact = torch.einsum("rct,ctn->rn", weights.double(), windows)
    for added in (False, True):
        expected = exact + (part if added else 0)
        call = torch.tensor([rows, columns, channels, taps, whole.stride(0), added])
        given = (weights, planes, offsets, part, call)
        function(*(v.data_ptr() for v in given))
        torch.testing.assert_close(part.double(), expected, atol=1e-3, rtol=1e-4)
        assert (whole[:, columns:] == 7).all()


def test_amx_instructions(tmp_path: Path) -> None:
    """The code for a CPU with tiles is compiled, not run."""
    package = tmp_path / "kernels"
    write_modules(family_sources("gemm.bfloat16"), package)
    text = _HEAD + _ONE.format(name="amx", unit="Tiles[]", source="Half")
    (tmp_path / "main.mojo").write_text(text)
    mojo = Path(sysconfig.get_path("scripts")) / "mojo"
    out = tmp_path / "main.s"
    subprocess.run(
        [mojo, "build", "--emit", "asm", "--target-cpu", "sapphirerapids", "-D", "TMB_STEPS=1",
         "-D", "TMB_BFLOAT16=tiles", "-I", tmp_path, tmp_path / "main.mojo", "-o", out],
        check=True,
    )  # fmt: skip
    lines = [line.split() for line in out.read_text().splitlines()]
    words = [line[0] for line in lines if line]
    assert words.count("ldtilecfg") >= 1
    # A multiplication for each pair of tiles, in blocks of 1 or 2 times 1 or 2.
    assert words.count("tdpbf16ps") == 9
    assert words.count("tilestored") == 9
    assert words.count("tilerelease") >= 1


@pytest.mark.parametrize(
    ("listed", "vendor", "granted", "unit"),
    [
        ("avx512f amx_tile amx_bf16 avx512_bf16", "GenuineIntel", True, "tiles"),
        ("avx512f amx_tile amx_bf16 avx512_bf16", "GenuineIntel", False, ""),
        ("avx512f avx512_bf16", "AuthenticAMD", True, "dots"),
        ("avx512f", "AuthenticAMD", True, ""),
    ],
)
def test_what_a_cpu_has(
    listed: str, vendor: str, granted: bool, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"flags": listed, "vendor_id": vendor}
    monkeypatch.setattr(instructions, "cpu_info", lambda: found)
    monkeypatch.setattr(instructions, "_granted", lambda: granted)
    monkeypatch.setattr(instructions, "flags", instructions.flags.__wrapped__)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert instructions._unit.__wrapped__() == unit


def test_float32_products_are_rounded_where_torch_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, weight = torch.randn(40, 64), torch.randn(64, 48)

    def steps() -> str:
        traced = make_fx(lambda *given: [torch.mm(*given)])(x, weight)
        return text_of(planned(prepare(traced)))

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        monkeypatch.setattr(instructions, "bfloat16_unit", lambda: "")
        assert "bf16" not in steps()
        monkeypatch.setattr(instructions, "bfloat16_unit", lambda: "dots")
        assert "bf16" in steps()
        allowed = tag(Options(), [x])
        torch.set_float32_matmul_precision("highest")
        assert "bf16" not in steps()
        assert tag(Options(), [x]) != allowed
    finally:
        torch.set_float32_matmul_precision(before)


def test_another_precision_is_another_graph() -> None:
    seen = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        seen.append(torch.get_float32_matmul_precision())
        return module.forward

    call = torch.compile(torch.mm, backend=backend)
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "medium", "highest"):
            torch.set_float32_matmul_precision(precision)
            call(torch.ones(4, 4), torch.ones(4, 4))
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == ["highest", "medium"]
