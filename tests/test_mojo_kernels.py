"""The Mojo kernels: their values on the CPU, and that they compile for GPUs that are not here."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


def _spoiled(*shape: int) -> torch.Tensor:
    """Random numbers with NaN, infinities and equal values in the first lines."""
    torch.manual_seed(0)
    x = torch.randn(shape)
    flat = x.reshape(-1, shape[-1])
    flat[0, ::7] = NAN
    flat[1, 1::5] = INF
    flat[2, 2::3] = -INF
    flat[3] = flat[3, 0].clone()
    flat[4] = -INF
    return x


CASES = {
    "max_pool2d": (lambda x: aten.max_pool2d_with_indices(x, [3, 2], [2, 1], [1, 1], [1, 2]), 4),
    "max_pool2d_ceil": (
        lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1], [1, 1], True),
        4,
    ),
    "adaptive_max_pool2d": (lambda x: aten.adaptive_max_pool2d(x, [3, 5]), 4),
    "avg_pool2d": (lambda x: aten.avg_pool2d(x, [3, 2], [2, 2], [1, 1], True, False), 4),
    "avg_pool2d_divisor": (
        lambda x: aten.avg_pool2d(x, [2, 2], [], [0, 0], False, True, 3),
        4,
    ),
    "adaptive_avg_pool2d": (lambda x: aten._adaptive_avg_pool2d(x, [3, 5]), 4),
    "sort": (lambda x: aten.sort.stable(x, stable=True, dim=-1), 2),
    "sort_descending": (lambda x: aten.sort.stable(x, stable=True, dim=0, descending=True), 2),
    "topk": (lambda x: aten.topk(x, 9)[0], 2),
    "topk_smallest": (lambda x: aten.topk(x, 70, -1, False)[0], 2),
    "cumprod": (lambda x: aten.cumprod(x, 0), 2),
    "logcumsumexp": (lambda x: aten.logcumsumexp(x, 1), 2),
    "cummax": (lambda x: aten.cummax(x, 1), 2),
    "cummin": (lambda x: aten.cummin(x, 0), 2),
    "median": (lambda x: aten.median.dim(x, 1)[0], 2),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import both_ways

    inputs = {4: _spoiled(2, 3, 9, 10), 2: _spoiled(12, 100)}
    return both_ways({n: (function, [inputs[rank]]) for n, (function, rank) in CASES.items()})


@compile_group("mojo_kernels", weight=20)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_torchs(name: str, kind: str) -> None:
    _programs()[f"{name}-{kind}"].assert_agrees(equal_nan=True)


@compile_group("mojo_kernels", weight=20)
@pytest.mark.parametrize(
    ("api", "architecture", "graphs"),
    [
        # `test_virtual_targets.py` compiles a package with one for NVIDIA.
        pytest.param("cuda", "sm_90a", [], id="nvidia", marks=pytest.mark.thorough),
        pytest.param("hip", "gfx942", ["running.lines"], id="amd"),
    ],
)
def test_kernels_compile_for(
    api: str, architecture: str, graphs: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Some of the graphs for each; with ``--all-samples``, all."""
    names = [] if request.config.getoption("--all-samples") else graphs
    out = tmp_path / "kernels.mef"
    command = [sys.executable, "-m", "tests.mojo_for_gpu", api, architecture, str(out), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, done.stderr
    assert architecture.encode() in out.read_bytes()


def test_every_kernel_that_gpus_have_is_compiled_for_them() -> None:
    root = Path(__file__).parents[1] / "mojo_kernels"
    graphs = "".join(f.read_text() for f in Path(__file__).parent.glob("gpu/kernels/*.py"))
    missing = []
    for file in root.rglob("*.mojo"):
        for struct in file.read_text().split('@register("')[1:]:
            name = struct.split('"')[0]
            if 'comptime assert target == "cpu"' not in struct and f'"{name}"' not in graphs:
                missing.append(f"{file.relative_to(root)}: {name}")
    assert not missing, "give each a graph in tests/gpu/kernels/, or assert that it is for CPUs"


def test_a_library_is_named_after_its_own_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So an edit compiles again what contains it, and nothing else."""
    from torch_max_backend.registry import kernel_sources as module

    texts = {"core.lines": "", "a.sums": "from ..core.lines import *\n"}
    texts |= {"b.parts": "", "b.means": "from .parts import *\n"}
    root = tmp_path / "kernels"
    module.write_modules(texts, root)
    monkeypatch.setattr(module, "kernel_sources", lambda: root)

    def names() -> list[str]:
        return [module.kernel_library_name.__wrapped__(n) for n in ("base", "a.sums", "b.means")]

    before = names()
    (root / "core" / "lines.mojo").write_text("# Other lines.\n")
    assert [a == b for a, b in zip(before, names(), strict=True)] == [True, False, True]
    (root / "b" / "parts.mojo").write_text("# Other parts.\n")
    assert [a == b for a, b in zip(before, names(), strict=True)] == [True, False, False]


def test_no_kernel_is_registered_by_two_libraries() -> None:
    """MAX refuses a graph that loads two libraries with a kernel of one name."""
    from torch_max_backend.registry.kernel_sources import family_sources, kernel_sources

    root = kernel_sources()
    modules = {".".join(p.relative_to(root).with_suffix("").parts) for p in root.rglob("*.mojo")}
    families = {m: family_sources(m) for m in modules if not m.endswith(".__init__")}
    libraries = set(families) - {n for m, texts in families.items() for n in texts if n != m}
    owners: dict[str, list[str]] = {}
    for library in libraries:
        for text in families[library].values():
            for name in re.findall(r'@register\("(\w+)"', text):
                owners.setdefault(name, []).append(library)
    assert owners
    assert not {name: found for name, found in owners.items() if len(found) > 1}
