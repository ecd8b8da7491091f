"""The command ``bench``: models by name, frameworks in turns, tables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.interpreters import run_python
from torch_max_backend.__main__ import main
from torch_max_backend.bench import frameworks, process, running
from torch_max_backend.bench.models import Subject, load
from torch_max_backend.bench.report import compared, markdown, plot, report
from torch_max_backend.bench.spec import Spec
from torch_max_backend.errors import OptionError

MODEL = """
import torch


def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh()), torch.randn(3, 4)


def named():
    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return {"sum": x + y, "past_key_values": x}

    return Sum(), {"x": torch.ones(2, 3), "y": torch.ones(3)}


def fails():
    class Never(torch.nn.Module):
        def forward(self, x):
            raise ValueError("no such thing")

    return Never(), torch.ones(2)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_a_table_of_two_frameworks(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "a.json", tmp_path / "a.md"
    command = ["bench", f"{file}:make", "--frameworks", "eager", "max", "--seconds", "0.05"]
    assert main([*command, "--rounds", "2", "--json", str(out), "--markdown", str(table)]) == 0
    said = capsys.readouterr()
    assert said.out == table.read_text()
    assert "max, turn 2 of 2" in said.err
    found = json.loads(out.read_text())
    eager, ours = found["frameworks"]["eager"], found["frameworks"]["max"]
    assert eager["speed_up"] == 1
    assert ours["speed_up"] == pytest.approx(eager["median_ms"] / ours["median_ms"])
    for row in (eager, ours):
        assert 0 < row["median_ms"] <= row["p90_ms"]
        assert len(row["calls_ms"]) >= 6
        assert 0 < row["largest_difference"] < 1e-6  # float32 beside float64
        assert row["mean_difference"] <= row["largest_difference"]
        assert row["memory_mb"] > 100
        assert (row["unit"], round(row["per_second"] * row["median_ms"] / 1e3)) == ("rows", 3)
    assert ours["cold_s"] > eager["cold_s"]
    versions = found["machine"]["versions"]
    assert versions["torch"] == torch.__version__.split("+")[0]
    assert found["machine"]["processor"] in said.out
    assert main(["bench", "compare", str(out), str(out)]) == 0
    assert "| max | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |" in capsys.readouterr().out


def test_a_framework_that_fails_is_a_row(file: Path) -> None:
    spec = Spec(f"{file}:fails", seconds=0.05)
    rows = running.run(spec, ["eager"], 2)
    assert rows == {"eager": {"failed": "ValueError: no such thing"}}
    text = markdown(report(spec, rows))
    assert "| eager | ValueError: no such thing |" in text


def test_what_is_not_installed_is_unavailable(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("openvino", "openvino.torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = Spec(f"{file}:make", seconds=0.01)
    for name in ("openvino", "onnxruntime"):
        found = process.measure(name, spec, tmp_path / "results.pt")
        assert found == {"unavailable": f"{name} is not installed"}
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match="needs matplotlib, which is not installed"):
        plot(report(spec, {}), tmp_path / "a.png")


def test_tinygrad_runs_llama_alone(file: Path, tmp_path: Path) -> None:
    found = process.measure("tinygrad", Spec(f"{file}:make"), tmp_path / "results.pt")
    assert "runs no PyTorch models" in found["unavailable"]


def test_tinygrads_llama_is_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    # An interpreter in Python, which needs no compiler.
    monkeypatch.setenv("DEV", "PYTHON")
    pytest.importorskip("tinygrad")
    from transformers import LlamaConfig, LlamaForCausalLM

    from torch_max_backend.bench.tinygrad_llama import llama

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=11, hidden_size=8, intermediate_size=6, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False,
        )
    )  # fmt: skip
    tokens = torch.tensor([[3, 1, 10]])
    with torch.no_grad():
        (found,) = llama(model.eval())(input_ids=tokens)
        torch.testing.assert_close(found, model(tokens).logits)


def test_training_steps_agree_with_float64(file: Path, tmp_path: Path) -> None:
    spec = Spec(f"{file}:make", mode="training", seconds=0.01)
    for name in (process.TRUTH, "eager"):
        assert "first" in process.measure(name, spec, tmp_path / f"{name}.pt")
    loss, *gradients = torch.load(tmp_path / "eager.pt")
    assert loss.dim() == 0
    assert [g.shape for g in gradients] == [(8, 4), (8,)]
    differences = running._differences(tmp_path / "eager.pt", tmp_path / f"{process.TRUTH}.pt")
    assert differences["largest_difference"] < 1e-6


def test_arguments_by_name_and_caches_of_keys(file: Path) -> None:
    subject = load(Spec(f"{file}:named"))
    assert (subject.items, subject.unit) == (2, "rows")
    found = subject.call(subject.model)
    assert [t.tolist() for t in process._tensors(found)] == [[[2.0] * 3] * 2]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("no_such_architecture", "There is no model 'no_such_architecture'"),
        ("timm/nothing", "timm has no model 'nothing'"),
        ("torchvision/nothing", "torchvision has no model 'nothing'"),
        ("nowhere.py:make", "There is no file nowhere.py"),
    ],
)
def test_unknown_models(model: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        load(Spec(model))


def test_a_file_without_the_function(file: Path) -> None:
    with pytest.raises(OptionError, match="has no function 'other'"):
        load(Spec(f"{file}:other"))


def test_weights_and_arguments_are_the_same_in_each_process(file: Path) -> None:
    first, second = (load(Spec(f"{file}:make")) for _ in range(2))
    assert torch.equal(first.args[0], second.args[0])
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_protein_models_have_the_sizes_of_esm2() -> None:
    subject = load(Spec("esm", batch=2, length=10))
    assert subject.model.config.num_hidden_layers == 6
    assert (subject.items, subject.unit) == (20, "tokens")
    assert subject.kwargs["input_ids"].shape == (2, 10)


def test_reports_of_two_machines_say_what_differs() -> None:
    row = {"cold_s": 1.0, "warm_s": 1.0, "median_ms": 2.0, "p90_ms": 3.0, "memory_mb": 4.0}
    old: dict[str, Any] = report(Spec("a"), {"eager": {**row, "unit": "rows"}})
    new = {**old, "spec": {**old["spec"], "batch": 2}}
    new["frameworks"] = {"eager": {**row, "median_ms": 1.0}, "max": row}
    text = compared(old, new)
    assert "| eager | 1.00 | 1.00 | 0.50 | 1.00 | 1.00 |" in text
    assert "| max |  |  |  |  |  |" in text
    assert "They differ in: batch." in text


def test_generated_text_is_compared_token_by_token(tmp_path: Path) -> None:
    for name, text in (("a", [[1.0, 2, 3, 4]]), ("b", [[1.0, 2, 3, 9]])):
        torch.save([torch.tensor(text)], tmp_path / name)
    found = running._differences(tmp_path / "a", tmp_path / "b", tokens=True)
    assert found == {"same_tokens": 0.75}


def test_generation_needs_a_model_that_generates() -> None:
    subject = Subject(torch.nn.Linear(2, 2), (torch.ones(2),))
    with pytest.raises(frameworks.Unavailable, match="has no generate"):
        process._generating(subject, Spec("a", mode="generate"))


def test_help_names_the_frameworks() -> None:
    done = run_python("-m", "torch_max_backend", "bench", "--help")
    for name in frameworks.FRAMEWORKS:
        assert name in done.stdout


def test_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch_max_backend.bench import progress

    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((61, 20))
    )
    monkeypatch.setattr(progress.time, "perf_counter", iter([0.0, 30.0]).__next__)
    told = progress.Progress(2)
    told.begin("net: eager")
    told.end()
    told.begin("net: max")
    told.end()
    first, second, last = capsys.readouterr().err.split("\r")[1:4]
    assert first.rstrip() == "[....................] 1 of 2: net: eager"
    assert second == "[##########..........] 2 of 2: net: max, about 30 s left".ljust(60)
    assert last == " " * 60
