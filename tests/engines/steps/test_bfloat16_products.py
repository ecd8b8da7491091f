"""Products of bfloat16 by the instructions of CPUs, those of others emulated."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

from torch_max_backend.compile.kernels import family_sources
from torch_max_backend.engines.steps import instructions, libraries

_HEAD = """\
from kernels.bfloat16 import BLOCK, DEPTH, SIDE, Dots, Half, Registers, Single, Tiles, product_by
from kernels.panels import Matrix
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
def test_{name}(a: Half, b: Half, c: Single, n: Sizes) abi("C"):
    product_by[{unit}](
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
_UNITS = {"tiles": "Tiles[Emulated]", "dots": "Dots"}


def _function(name: str) -> ctypes._CFuncPtr:
    text = _HEAD + _ONE.format(name=name, unit=_UNITS[name])
    found = libraries.exported(f"test_{name}", text, {f"test_{name}": name}, ["bfloat16"])
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(found[f"test_{name}"])


@pytest.mark.parametrize("name", _UNITS)
def test_products(name: str) -> None:
    if name == "dots" and "avx512_bf16" not in instructions.flags():
        pytest.skip("this CPU has no dot products of bfloat16")
    function = _function(name)
    torch.manual_seed(0)
    sizes = [(9, 9, 32), (16, 48, 64), (33, 70, 100), (130, 31, 1024 + 40), (300, 65, 33)]
    for m, n, k in sizes:
        for turned_a in (False, True):
            for turned_b in (False, True):
                a = torch.randn(k, m).bfloat16().T if turned_a else torch.randn(m, k).bfloat16()
                b = torch.randn(n, k).bfloat16().T if turned_b else torch.randn(k, n).bfloat16()
                for added in (False, True):
                    # A frame around the result that nothing may write to.
                    whole = torch.full((m + 2, n + 3), 7.0)
                    part = whole[1:-1, 1:-2]
                    part.copy_(torch.randn(m, n))
                    expected = a.double() @ b.double() + (part if added else 0)
                    strides = (*a.stride(), *b.stride(), whole.stride(0), added)
                    call = torch.tensor([m, n, k, *strides])
                    function(a.data_ptr(), b.data_ptr(), part.data_ptr(), call.data_ptr())
                    torch.testing.assert_close(part.double(), expected, atol=1e-3, rtol=1e-4)
                    assert (whole.sum() - part.sum() - 7 * (whole.numel() - part.numel())).abs() < 1


def test_amx_instructions(tmp_path: Path) -> None:
    """The code for a CPU with tiles is compiled, not run."""
    package = tmp_path / "kernels"
    package.mkdir()
    for name, text in {"__init__": "\n", **family_sources("bfloat16")}.items():
        (package / f"{name}.mojo").write_text(text)
    text = _HEAD + _ONE.format(name="amx", unit="Tiles[]")
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
