"""The matrix of small models: their structure stays as it is known, and what runs them works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.matrix import CASES
from benchmarks.matrix.outputs import errors, stirred, tensors
from benchmarks.matrix.runner import Results, phase, run
from benchmarks.matrix.table import HEADS, markdown, runs_in_torch, share
from tests.support.groups import compile_group

EXPECTED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("expected.json").read_text()
)
_TABLE = Path(__file__).parents[2] / "docs" / "models.md"


def _tenth() -> set[str]:
    """A tenth of each family's models, by name; large ones, whose explanations take up to 20 CPU s,
    are left to thorough runs."""
    families: dict[str, list[str]] = {}
    for name in sorted(CASES):
        known = EXPECTED[name]
        if known["graphs"] == 1 and known["operators"] <= 200:
            families.setdefault(CASES[name].family, []).append(name)
    return {name for names in families.values() for name in names[1::10] or names}


_ALWAYS = _tenth()


@compile_group("matrix", weight=5)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.thorough] * (n not in _ALWAYS)) for n in CASES]
)
def test_structure(name: str) -> None:
    from benchmarks.matrix.one import structure

    found = structure(CASES[name])
    expected = {k: v for k, v in EXPECTED[name].items() if k != "error"}
    assert {k: found[k] for k in expected} == expected, "\n".join(found["why"])


def test_every_model_is_expected_and_in_the_table() -> None:
    rows = [line.strip("|").split("|") for line in _TABLE.read_text().splitlines() if "|" in line]
    table = {row[0].strip(): [cell.strip() for cell in row] for row in rows}
    assert list(EXPECTED) == list(CASES)
    at = {head: i for i, head in enumerate(HEADS)}
    for name, expected in EXPECTED.items():
        row = table[name]
        assert row[at["graphs"]] == str(expected["graphs"])
        assert row[at["breaks"]] == str(expected["breaks"])
        assert row[at["on MAX"]] == share(expected)
        assert row[at["torch runs"]] == runs_in_torch(expected)
        if expected["error"] is not None:
            assert float(row[at["error"]].split(" ")[0]) <= expected["error"]


def test_every_family_is_tested() -> None:
    assert {CASES[name].family for name in _ALWAYS} == {case.family for case in CASES.values()}


def test_nine_of_ten_models_have_no_fallback() -> None:
    whole = [n for n, e in EXPECTED.items() if not e["fallbacks"] and not e["small"]]
    assert len(whole) >= 0.9 * len(EXPECTED)


@pytest.mark.parametrize(
    ("actual", "wrong"),
    [
        ([torch.ones(3), torch.tensor([1, 2])], ""),
        ([torch.ones(3) * (1 + 1e-7), torch.tensor([1, 2])], ""),
        ([torch.ones(3) * 1.01, torch.tensor([1, 2])], "tensor 0 is 1.0e-02 from eager"),
        ([torch.tensor([1, float("nan"), 1]), torch.tensor([1, 2])], "tensor 0 is inf from eager"),
        ([torch.ones(3), torch.tensor([1, 3])], "tensor 1 (torch.int64) differs in 1 place"),
        ([torch.ones(1, 3), torch.tensor([1, 2])], "tensor 0 is torch.float32[1, 3]"),
        ([torch.ones(3)], "1 tensors instead of 2"),
    ],
)
@pytest.mark.parametrize("truth", [None, [torch.ones(3).double(), torch.tensor([1, 2])]])
def test_what_is_wrong_is_told(
    actual: list[torch.Tensor], wrong: str, truth: list[torch.Tensor] | None
) -> None:
    found = errors(actual, [torch.ones(3), torch.tensor([1, 2])], truth)
    assert found.wrong.startswith(wrong)
    assert bool(found.wrong) == bool(wrong)


def test_float64_decides_where_eager_is_inexact() -> None:
    eager, truth = torch.tensor([1.001]), torch.tensor([1.0]).double()
    assert not errors([torch.tensor([0.998])], [eager], [truth]).wrong
    assert errors([torch.tensor([0.996])], [eager], [truth]).wrong
    assert errors([torch.tensor([0.998])], [eager], None).wrong


def test_integers_may_be_off_where_eagers_are() -> None:
    eager, truth = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([1, 2, 3, 5, 4])
    assert not errors([torch.tensor([2, 1, 3, 4, 5])], [eager], [truth]).wrong
    assert errors([torch.tensor([2, 1, 4, 3, 5])], [eager], [eager]).wrong
    assert errors([torch.tensor([2, 1, 3, 4, 5])], [eager], None).wrong


def test_all_tensors_of_an_output_are_found() -> None:
    class Cache:
        def __init__(self) -> None:
            self.layers = [{"keys": torch.ones(2)}, self]

    found = tensors({"a": (torch.zeros(1), None, "b"), "c": Cache()})
    assert [t.tolist() for t in found] == [[0.0], [1.0, 1.0]]


def test_constant_parameters_are_stirred() -> None:
    norm = stirred(torch.nn.LayerNorm(8))
    assert len(norm.weight.unique()) == 8
    assert norm.weight.detach().sub(1).abs().max() < 1


def test_a_run_goes_on_and_repeats_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.matrix import runner

    asked = []
    answers = {("gpt2", "cold"): {"failed": "killed by SIGSEGV"}}

    def answer(name: str, which: str, caches: Path, limit: float) -> dict[str, Any]:
        asked.append((name, which))
        return answers.get((name, which), {"graphs": 1})

    monkeypatch.setattr(runner, "phase", answer)
    path = tmp_path / "found.jsonl"
    run(["gpt2", "llama"], ["explain", "cold"], Results(path))
    assert asked == [(n, p) for n in ("gpt2", "llama") for p in ("explain", "cold")]
    known = Results(path)
    assert known.reports["gpt2"]["cold"] == {"failed": "killed by SIGSEGV"}
    assert known.machines["cold"]["cores"]
    asked.clear()
    answers.clear()
    run(["gpt2", "llama"], ["explain", "cold"], known)
    assert asked == [("gpt2", "cold")]
    asked.clear()
    run(["gpt2"], ["warm"], known)
    assert asked == [("gpt2", "cold"), ("gpt2", "warm")], "the caches have to be filled again"
    asked.clear()
    run(["gpt2"], ["explain"], known, again=True)
    assert asked == [("gpt2", "explain")]
    run(["gpt2"], ["steady"], known, minutes=0)
    assert "steady" not in known.reports["gpt2"]


def test_a_process_that_crashes_or_hangs_is_told_of(tmp_path: Path) -> None:
    assert phase("no such model", "explain", tmp_path, 600) == {
        "failed": "KeyError: 'no such model'"
    }
    assert phase("gpt2", "explain", tmp_path, 0.01)["failed"].startswith("no end after")


def test_the_table_shows_what_is_missed(tmp_path: Path) -> None:
    results = Results(tmp_path / "found.jsonl")
    structure = {"graphs": 2, "breaks": 1, "operators": 97, "small": 1, "fallbacks": {"aten.x": 2}}
    results.add("gpt2", "explain", structure)
    wrong = {"error": 0.5, "ours": 0.5, "theirs": 1e-7, "wrong": "tensor 0 is off"}
    results.add("gpt2", "cold", {**wrong, "cpu_s": 20.0, "wall_s": 10.0, "failed runs": 1})
    results.add("llama", "cold", {"failed": "killed by SIGSEGV"})
    results.add("gpt2", "steady", {"eager": 1.0, "max": 2.0, "errors": {"inductor": "why"}})
    page = markdown(results)
    row = next(line for line in page.splitlines() if line.startswith("| gpt2 "))
    assert "| 97.0% | `aten.x` 2, small 1 | 5.0e-01 (tensor 0 is off) (failed runs: 1) |" in row
    assert row.endswith("| 20.0 / 10.0 |  | 1.00 | failed | 2.00 |")
    assert "Slower than eager, times: gpt2 2.00." in page
    assert "beside eager's: 2.00 times, geometric mean of 1 models; less than eager's in 0" in page
    assert "Wrong: gpt2." in page
    assert "Failed: llama." in page
    assert next(line for line in page.splitlines() if line.startswith("| llama ")).count(
        "killed by SIGSEGV"
    )
