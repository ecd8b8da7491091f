"""Packages for machines that are not this one. MAX compiles nothing: ``tests/gpu`` does that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.closeness import difference
from tests.support.module_cache import kept_kernels
from torch_max_backend import OptionError, PackageError, export, load
from torch_max_backend.ahead_of_time import elsewhere
from torch_max_backend.ahead_of_time.manifest import MANIFEST, parsed
from torch_max_backend.cache import targets
from torch_max_backend.cache.compatibility import environment_components, misfits
from torch_max_backend.cache.targets import Target


class _Model(torch.nn.Module):
    """Tensors of all origins: parameters, buffers, constants, made, moved."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x) + self.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return y + torch.arange(4), torch.cond(x.sum() > 0, torch.sin, torch.cos, (more.to("cpu"),))


@pytest.fixture
def made_up(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[tuple[Any, Any]]]:
    """Artifacts are made up; the modules and targets that were to be compiled."""
    asked: list[tuple[Any, Any]] = []

    def compile_elsewhere(module: Any, *_: Any, target: Target, **__: Any) -> bytes:
        asked.append((str(module.mlir_module), str(target)))
        return b"native code"

    monkeypatch.setattr(elsewhere, "compile_elsewhere", compile_elsewhere)
    with kept_kernels():
        yield asked


@pytest.fixture
def package(made_up: list[Any], tmp_path: Path) -> Path:
    return export(_Model(), (torch.ones(2, 4), torch.ones(3)), path=tmp_path / "p", target="sm_90a")


def test_all_of_a_model_is_on_the_device(package: Path, made_up: list[Any]) -> None:
    manifest = parsed((package / MANIFEST).read_bytes())
    tensors = [s.tensor for s in manifest.state] + list(manifest.constants.values())
    assert {t.device for t in tensors} | {i.device for i in manifest.inputs} == {"cuda:0"}
    ((module, target),) = made_up
    assert target.startswith("cuda sm_90a ")
    (head,) = [line for line in module.splitlines() if "mo.graph @g0" in line]
    assert "gpu:0" in head
    assert "cpu:0" not in head


def test_the_model_stays_where_it_is(made_up: list[Any], tmp_path: Path) -> None:
    model = _Model()
    export(model, (torch.ones(2, 4), torch.ones(3)), path=tmp_path / "p", target="gfx942")
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"cpu"}


def test_each_target_is_compiled_once(made_up: list[Any], tmp_path: Path) -> None:
    for architecture in ("sm_80", "sm_90a", "sm_80"):
        arguments = torch.ones(2, 4), torch.ones(3)
        export(_Model(), arguments, path=tmp_path / "p", target=architecture)
    assert [target.split()[1] for _, target in made_up] == ["sm_80", "sm_90a"]


def test_a_machine_without_the_gpu_refuses(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "gpu_here", lambda: None)
    with pytest.raises(PackageError, match="needs a GPU of sm_90a, and torch sees none"):
        load(package)
    monkeypatch.setattr(targets, "gpu_here", lambda: ("cuda", "sm_80"))
    with pytest.raises(PackageError, match="needs a GPU of sm_90a, and this one is sm_80"):
        load(package)


@pytest.mark.parametrize(
    ("precision", "rows", "split"),
    [("highest", 2, True), ("high", 2, False), ("highest", 1, False)],
)
def test_products_are_of_float32_unless_torch_is_told_otherwise(
    precision: str, rows: int, split: bool, made_up: list[Any], tmp_path: Path
) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        layer = torch.nn.Linear(8, 8)
        export(layer, (torch.ones(rows, 8),), path=tmp_path / "p", target="sm_90a")
    finally:
        torch.set_float32_matmul_precision(before)
    assert ("tmb_tf32_operand" in made_up[0][0]) == split


@pytest.mark.parametrize(("dtype", "own"), [(torch.float32, True), (torch.bfloat16, False)])
def test_tanh_is_of_float32(
    dtype: torch.dtype, own: bool, made_up: list[Any], tmp_path: Path
) -> None:
    export(torch.nn.Tanh(), (torch.ones(8, dtype=dtype),), path=tmp_path / "p", target="sm_90a")
    assert ("tmb_unary" in made_up[0][0]) == own


@pytest.mark.parametrize("name", ["", "sm90", "x86-64", "x86-64-v9", "cuda", "gfx", "sm_90a b"])
def test_what_is_no_target_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is neither a GPU nor a level"):
        export(_Model(), (torch.ones(2, 4), torch.ones(3)), path=tmp_path / "p", target=name)


@pytest.mark.parametrize(
    ("name", "here", "fits"),
    [
        ("sm_90a", ("cuda", "sm_90"), True),
        ("sm_90", ("cuda", "sm_90"), True),
        ("sm_90a", ("cuda", "sm_100"), False),
        ("sm_90a", ("hip", "gfx942"), False),
        ("gfx942", ("hip", "gfx942"), True),
        ("gfx942", ("hip", "gfx90a"), False),
    ],
)
def test_where_a_package_runs(
    name: str, here: tuple[str, str], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = "abm avx avx2 bmi1 bmi2 cx16 f16c fma movbe popcnt sse4_1 sse4_2 ssse3"
    monkeypatch.setattr(targets, "gpu_here", lambda: here)
    monkeypatch.setattr(targets, "cpu_info", lambda: {"flags": flags})
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    assert (Target.of(name).lacks() == "") == fits
    monkeypatch.setattr(targets, "cpu_info", lambda: {"flags": "avx"})
    assert Target.of(name).lacks() != ""


class _Layers(torch.nn.Module):
    """What CPUs have instructions of their own for, in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(4, 8, 3)
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.convolution(x).relu().flatten(2).transpose(1, 2)
        heads = self.layer(rows)[:, None]
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_plan_for_any_processor(
    dtype: torch.dtype, lent_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = _Layers().eval().to(dtype), torch.randn(2, 4, 6, 6).to(dtype)
    path = export(model, (x,), path=tmp_path / "p", target="x86-64-v3")
    manifest = parsed((path / MANIFEST).read_bytes())
    assert manifest.components["target"] == "cpu x86-64-v3 x86-64-v3"
    assert manifest.signature.bfloat16 == ""
    with torch.no_grad():
        theirs, truth = model(x), model.double()(x.double())
    assert difference([load(path)(x)], [theirs], [truth]) is None
    monkeypatch.setattr(targets, "cpu_info", lambda: {"flags": "avx"})
    with pytest.raises(PackageError, match="it needs a processor of x86-64-v3"):
        load(path)


def test_how_torch_was_built_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "lacks", lambda self: "")
    public = torch.__version__.partition("+")[0]
    parts = {**environment_components(), "target": "cuda sm_90a x86-64-v3", "torch": public}
    assert misfits(parts) == {}
    assert misfits({**parts, "torch": "2.0.0"}).keys() == {"torch"}


def test_a_target_is_read_as_it_is_written() -> None:
    target = Target.of("sm_90a")
    assert Target.written(str(target)) == target
    assert Target.written(environment_components()["target"]) is None
    assert dataclasses.astuple(target)[:2] == ("cuda", "sm_90a")
