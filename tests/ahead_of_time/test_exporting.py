"""What ``export`` refuses, and what it leaves behind. Nothing here is compiled."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_max_backend import OptionError, PackageError, UnsupportedOperatorError, export
from torch_max_backend.driver.job import Job

Pair = namedtuple("Pair", "a b")


@pytest.fixture
def uncompiled(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts are made up."""
    from torch_max_backend.cache import store

    def functions(self: Job, *others: Job) -> list[Any]:
        store.put(self.entry, b"native code", self.parts)
        return []

    monkeypatch.setattr(Job, "functions", functions)


class Module(torch.nn.Module):
    def __init__(self, function: Any = torch.sin) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


X = torch.ones(3)


def _files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def _custom(name: str) -> Any:
    operator = torch.library.custom_op(f"package_test::{name}", torch.clone, mutates_args=(),
                                       schema="(Tensor x) -> Tensor")  # fmt: skip
    operator.register_fake(torch.empty_like)
    return operator


def test_all_refused_operators_are_named(uncompiled: None, tmp_path: Path) -> None:
    one, two = _custom("one"), _custom("two")
    with pytest.raises(UnsupportedOperatorError, match=r"one(.|\n)*two") as caught:
        export(Module(lambda x: one(x) + two(x).sin() + two(x)), (X,), path=tmp_path / "p")
    assert caught.value.operators == ("package_test.one.default", "package_test.two.default")
    assert __file__ in str(caught.value)
    assert not (tmp_path / "p").exists()


def test_what_is_written(uncompiled: None, tmp_path: Path) -> None:
    path = export(Module(), (X,), path=str(tmp_path / "deep" / "p"))
    assert path == tmp_path / "deep" / "p"
    assert _files(path) == {"manifest.json", "code.mef", "weights.safetensors", "graph.txt"}
    assert _files(path.parent) == {"p"}
    (tmp_path / "other").touch()
    mode = (tmp_path / "other").stat().st_mode
    assert {p.stat().st_mode for p in path.iterdir()} == {mode}
    assert b"\x80\x04" not in b"".join(p.read_bytes() for p in path.iterdir())  # no pickle


def test_a_package_is_replaced_and_nothing_else(uncompiled: None, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        export(Module(), (X,), path=tmp_path / "empty")
    before = (tmp_path / "empty" / "graph.txt").read_text()
    export(Module(torch.cos), (X,), path=tmp_path / "empty")
    assert (tmp_path / "empty" / "graph.txt").read_text() != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "file", "link", "lost"):
        with pytest.raises(PackageError, match="is no package"):
            export(Module(), (X,), path=tmp_path / name)
    assert (tmp_path / "mine" / "data").read_text() == "mine"
    assert _files(tmp_path) == {"empty", "mine", "file", "link", "lost", "torch_max_backend"}


def test_a_folder_that_cannot_be_written(uncompiled: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PackageError, match="could not be written"):
        export(Module(), (X,), path=tmp_path / "file" / "p")


def test_an_exported_program_has_its_arguments(uncompiled: None, tmp_path: Path) -> None:
    program = torch.export.export(Module(), (X,))
    with pytest.raises(PackageError, match="has its arguments"):
        export(program, (X,), path=tmp_path / "p")
    assert export(program, path=tmp_path / "p").is_dir()
    assert export(program.run_decompositions(), path=tmp_path / "p").is_dir()


def test_a_compiled_module_is_what_it_was_made_of(uncompiled: None, tmp_path: Path) -> None:
    module = torch.compile(Module(), backend="max")
    assert export(module, (X,), path=tmp_path / "p").is_dir()


@pytest.mark.parametrize(
    "function",
    [lambda x: Pair(x + 1, x), lambda x: {(1, 2): x + 1}, lambda x: {torch.float32: x + 1}],
    ids=["unregistered", "tuple as key", "dtype as key"],
)
def test_structures_that_json_cannot_hold(uncompiled: None, tmp_path: Path, function: Any) -> None:
    with pytest.raises(PackageError, match=r"structure of the results .*\n.*tuples, lists"):
        export(Module(function), (X,), path=tmp_path / "p")
    assert not (tmp_path / "p").exists()
    assert not (tmp_path / "torch_max_backend" / "artifacts").exists()  # found before the compile


def test_options_are_those_of_the_backend(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Did you mean 'bank'"):
        export(Module(), (X,), path=tmp_path / "p", options={"banks": "mojo"})
