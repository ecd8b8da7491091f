"""``python -m torch_max_backend ops``: what it tells, and what it writes into a checkout."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from torch_max_backend.__main__ import main

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.xdist_group("operator_tools")


@pytest.fixture
def ops(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command, and returns what it prints."""

    def run(*arguments: str) -> str:
        assert main(["ops", *arguments]) == 0
        return capsys.readouterr().out

    return run


def _line(text: str) -> str:
    """The line of the repository that a text tells the place of."""
    file, number = re.findall(r"(torch_max_backend/[\w/]+\.py):(\d+)", text)[0]
    return "".join((ROOT / file).read_text().splitlines(keepends=True)[int(number) - 1 :][:8])


@pytest.mark.parametrize(
    "name", ["gelu", "aten.gelu", "aten.gelu.default", "torch.ops.aten.gelu", "aten::gelu", "gel?"]
)
def test_a_lowered_operator(name: str, ops: Callable[..., str]) -> None:
    text = ops(name)
    assert text.startswith("aten.gelu.default: lowered\n    aten::gelu(Tensor self")
    assert "def gelu(" in _line(text)


def test_kernels_and_refusals_of_a_lowering(ops: Callable[..., str]) -> None:
    text = ops("native_dropout")
    assert "Mojo kernels: random" in text
    assert "with random numbers" in text
    assert "a parameter that changes from call to call" in text  # of a function that it calls


def test_decomposed_operators(ops: Callable[..., str]) -> None:
    by_torch = ops("aten.logit.default")
    assert "aten.logit.default: decomposed" in by_torch
    assert "torch/_refs/special/__init__.py:" in by_torch
    assert re.search(r"into .*aten\.log\.default", by_torch)
    ours = ops("aten._trilinear")
    assert "def _trilinear(" in _line(ours)
    before = ops("aten.fft_fft.default")
    assert "by torch's definition" in before
    assert "into aten._fft_r2c.default" in before


def test_what_writes_to_arguments_is_functional_in_graphs(ops: Callable[..., str]) -> None:
    assert ops("aten.add_.Tensor").startswith("aten.add_.Tensor: functionalized\n")


def test_a_missing_operator(ops: Callable[..., str]) -> None:
    text = ops("aten._fused_adam.default")
    assert text.startswith("aten._fused_adam.default: missing\n")
    assert "no lowering is registered" in text
    assert "Fused optimizers" in text
    assert "](" not in text


def test_an_unknown_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "geluu"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert "no operator 'geluu'" in error
    assert "gelu" in error.splitlines()[-1]


def test_the_summary_counts_what_the_page_lists(ops: Callable[..., str]) -> None:
    page = (ROOT / "docs" / "ops.md").read_text()
    counted = dict(re.findall(r"^ +(\d+)  (.*)$", ops(), re.M))
    assert len(counted) >= 10
    if torch.__version__ < "2.15":
        return  # the page is of the operators of torch 2.15
    for number, title in counted.items():
        section = page.split(f"### {title}\n")[1].split("\n### ")[0]
        assert len(re.findall(r"`[\w.]+`(?=,|\n)", section.rpartition("\n\n")[2])) == int(number)


@pytest.fixture
def operator() -> Iterator[str]:
    """An operator that torch knows and this package does not."""
    library = torch.library.Library("scaffolded", "DEF")
    library.define(
        "halve(Tensor x, Tensor y, float by, SymInt[] sizes=[], bool rest=False) -> Tensor"
    )
    library.define("blend(Tensor x, Tensor y, float by, int n=1, bool rest=False) -> Tensor")
    for name in ("halve", "blend"):
        library.impl(name, lambda x, y, *others: x * y, "CompositeExplicitAutograd")
    yield "scaffolded"
    library._destroy()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this checkout's sources."""
    root = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("torch_max_backend", "tests", "mojo_kernels"):
        shutil.copytree(ROOT / part, root / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def _ruff(root: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, "."], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def _marked(text: str, mark: str) -> int:
    (line,) = (i for i, line in enumerate(text.splitlines(), 1) if mark in line)
    return line


def test_a_stub_fails_at_the_marked_line_alone(operator: str, tree: Path) -> None:
    from torch_max_backend import ConversionError
    from torch_max_backend.operator_tools.scaffold import scaffold
    from torch_max_backend.operator_tools.templates import LOWERING_MARK
    from torch_max_backend.registry.lowerings import registry

    written = scaffold(tree, f"{operator}.halve", family="halving")
    _ruff(tree)
    test = ast.parse((tree / "tests/ops/test_halve.py").read_text())
    assert "test_values_are_torchs" in {getattr(n, "name", "") for n in test.body}
    coverage = (tree / "tests/conformance/coverage.py").read_text()
    assert 'ELSEWHERE["scaffolded.halve.default"] = "tests/ops/test_halve.py"' in coverage
    assert "uv run pytest tests/ops/test_halve.py" in written.report()

    file = tree / "torch_max_backend/ops/halving.py"
    text = file.read_text()
    assert "sizes: list[int | Dim], rest: bool" in text
    assert '"""halve(Tensor x, Tensor y, float by, SymInt[] sizes=[], bool rest=False)' in text
    found = importlib.util.spec_from_file_location("halving", file)
    assert found is not None
    assert found.loader is not None
    found.loader.exec_module(importlib.util.module_from_spec(found))
    overload = torch.ops.scaffolded.halve.default
    try:
        x = torch.ones(3)
        compiled = torch.compile(
            lambda x: overload(x, x, 0.5) + 1,
            backend="max",
            options={"fallback": "error", "cache": False},
        )
        with pytest.raises(ConversionError, match=r"lowering of scaffolded\.halve\.default"):
            compiled(x)
        with pytest.raises(NotImplementedError) as error:
            registry[overload].function(*[None] * 5)
        last = traceback.extract_tb(error.tb)[-1]
        assert (last.filename, last.lineno) == (str(file), _marked(text, LOWERING_MARK))
    finally:
        registry.remove(overload)


def test_a_kernel_is_one_for_both_engines(
    operator: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.engines.steps.signatures import Signature, parse
    from torch_max_backend.operator_tools.scaffold import scaffold
    from torch_max_backend.operator_tools.templates import KERNEL_MARK
    from torch_max_backend.registry import kernel_sources as kernels

    before = (tree / "torch_max_backend/ops/special.py").read_text()
    scaffold(tree, f"{operator}.blend", family="special", kernel=True)
    _ruff(tree)
    after = (tree / "torch_max_backend/ops/special.py").read_text()
    assert after.startswith(before)  # the names that it needs are imported there already
    assert '@map_to(torch.ops.scaffolded.blend.default, kernels="elementwise.blend")' in after
    assert "BUILDERS = (blend,)" in (tree / "tests/gpu/kernels/blend.py").read_text()

    text = (tree / "mojo_kernels/elementwise/blend.mojo").read_text()
    _marked(text, KERNEL_MARK)
    (signature,) = parse(text, "blend")
    assert isinstance(signature, Signature), signature  # a step can call it
    assert [a.kind for a in signature.arguments] == ["output", "input", "input", "scalar", "scalar"]
    assert [(p.name, p.type) for p in signature.parameters] == [("rest", "Bool")]
    monkeypatch.setattr(kernels, "kernel_sources", lambda: tree / "mojo_kernels")
    folder = tree / "blend"
    kernels.write_modules(kernels.family_sources("elementwise.blend"), folder)
    (folder / "__init__.mojo").write_text("from .elementwise.blend import *\n")
    mojo = Path(sys.executable).with_name("mojo")
    done = subprocess.run(
        [mojo, "precompile", folder, "-o", tree / "blend.mojoc"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "blend.mojo" not in done.stderr, done.stderr  # no warnings


def test_a_row_of_torchs_samples(tree: Path) -> None:
    from torch_max_backend.operator_tools.scaffold import scaffold

    path = tree / "tests/conformance/families/unary.py"
    path.write_text(path.read_text().replace('    Entry("deg2rad"),\n', ""))
    written = scaffold(tree, "aten.deg2rad", family="unary")
    assert path.read_text().endswith('    Entry("nan_to_num"),\n    Entry("deg2rad"),\n]\n')
    assert "uv run python -m tests.conformance deg2rad" in written.report()
    assert "torch decomposes it" in written.report()


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("aten.gelu", {}, "has a lowering already: torch_max_backend/ops/activation.py:"),
        ("aten.add_", {}, "writes to its arguments"),
        ("aten.nosuch", {}, "There is no operator aten.nosuch"),
        ("aten.std", {}, "is several overloads, name one: aten.std."),
        ("aten.hash_tensor", {}, "Say --family FILE"),
        ("aten.hash_tensor", {"family": "../x"}, "cannot be the name of a file"),
        ("aten.unbind.int", {"kernel": True}, "lowering already|it returns List"),
        ("aten.logit", {"kernel": True}, "its argument eps is Optional"),
    ],
)
def test_what_cannot_be_written(
    name: str, settings: dict[str, object], reason: str, tree: Path
) -> None:
    from torch_max_backend.operator_tools.scaffold import ScaffoldError, scaffold

    before = {p: p.read_bytes() for p in tree.rglob("*.py")}
    with pytest.raises(ScaffoldError, match=reason):
        scaffold(tree, name, **settings)  # type: ignore[arg-type]
    assert {p: p.read_bytes() for p in tree.rglob("*.py")} == before


def test_an_installed_package_has_no_place_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch_max_backend.operator_tools import scaffold

    monkeypatch.setattr(scaffold, "__file__", str(tmp_path / "torch_max_backend/a/scaffold.py"))
    assert main(["ops", "new", "aten.deg2rad"]) == 1
    assert "this package is installed" in capsys.readouterr().err
