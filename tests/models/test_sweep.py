"""What makes, runs and lists small models of architectures nobody wrote code for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.sweep import __main__ as sweep
from benchmarks.sweep import sizes
from benchmarks.sweep import training as training_
from benchmarks.sweep.catalog import model_of, names
from benchmarks.sweep.inference import inference
from benchmarks.sweep.one import examine
from benchmarks.sweep.small import small
from benchmarks.sweep.table import markdown
from benchmarks.sweep.training import training


def test_a_configuration_becomes_small_and_keeps_its_structure() -> None:
    from transformers import CLIPConfig, Gemma2Config

    config = small(Gemma2Config())
    assert config.num_hidden_layers == 2
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert (config.hidden_size, config.vocab_size) == (64, 256)
    both = small(CLIPConfig())
    assert both.text_config.num_hidden_layers == both.vision_config.num_hidden_layers == 2
    assert max(both.text_config.eos_token_id, both.text_config.bos_token_id) < 256


def test_there_are_names_of_every_library() -> None:
    found = names()
    assert {"transformers/bert", "timm/resnet", "torchvision/squeezenet1_0"} <= set(found)
    assert len(found) == len(set(found)) > 700


def test_arguments_are_found() -> None:
    model, arguments = model_of("transformers/layoutlm")
    assert set(arguments) == {"input_ids", "bbox"}
    assert sum(p.numel() for p in model.parameters()) < 1e6


def test_an_architecture_is_examined() -> None:
    found = examine("transformers/albert", inference)
    assert found["right"], found
    assert found["operators"] > 10
    assert (found["graphs"], found["breaks"], found["eager"]) == (1, 0, {})
    assert "skipped" in examine("transformers/no_such_model", inference)


def test_gradients_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examine("transformers/albert", training)
    assert found["right"], found
    assert found["graphs"] == 1

    def doubled(model: torch.nn.Module) -> torch.nn.Module:
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: 2 * gradient)
        return model

    monkeypatch.setattr(training_, "compiled", doubled)
    found = examine("transformers/albert", training)
    assert not found["right"]
    assert "gradient of" in found["wrong"]


def test_sizes_vary() -> None:
    given = {"input_ids": torch.arange(20).view(2, 10), "mask": torch.ones(2, 10)}
    given |= {"pixel_values": torch.ones(2, 3, 32, 32)}
    found = sizes.variants(given)
    assert [*found][:: len(found) - 1] == ["given", "given again"]
    assert found["batch x 3"]["input_ids"].shape == (6, 10)
    assert found["longer text"]["mask"].shape == (2, 15)
    assert found["shorter text"]["input_ids"].shape == (2, 7)
    assert found["image + 32"]["pixel_values"].shape == (2, 3, 64, 96)


def test_an_architecture_is_called_with_varied_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examine("transformers/albert", sizes.sizes)
    assert found["right"], found
    assert (found["sizes"], found["breaks"]) == (6, 0)
    monkeypatch.setattr(sizes, "compiled", lambda model, dynamic: lambda **given: model.foo)
    assert not examine("transformers/albert", sizes.sizes)["right"]


class Process:
    """In the place of ``subprocess.Popen``: crashes at the second of the architectures."""

    returncode = -11

    def __init__(self, command: list[str], **_: Any) -> None:
        how, first, second = (*command[3:], "")[:3]
        assert how == "inference"
        lines = [{"begins": first}, {"name": first, "right": True}]
        lines += [{"begins": second}] if second == "bad" else []
        self.stdout = [json.dumps(line) + "\n" for line in lines]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_crash_is_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep.subprocess, "Popen", Process)
    found = list(sweep.examined(["one", "bad", "two"], "inference"))
    assert [f["name"] for f in found] == ["one", "bad", "two"]
    assert [f["right"] for f in found] == [True, False, True]
    assert "-11" in found[1]["error"]
    file = tmp_path / "lines"
    file.write_text("".join(json.dumps(f) + "\n" for f in (*found, {**found[1], "right": True})))
    assert sweep.known(file)["bad"]["right"]


def test_the_table_counts() -> None:
    base = {"right": True, "operators": 5, "eager_operators": 0, "graphs": 1, "breaks": 0}
    results = [
        {"name": "a/one", **base},
        {"name": "a/two", **base, "eager_operators": 2, "eager": {"aten.x.default": 2}},
        {"name": "a/bad", **base, "right": False, "wrong": "tensor 0 is `off`"},
        {"name": "a/none", "skipped": "ValueError: it is large"},
    ]
    text = markdown(results)
    assert "Of 3 architectures, 2 (66.7%) run and are right" in text
    assert "1 (33.3%) have no operator without a step" in text
    assert "| aten.x.default | 1 |" in text
    assert "- `a/bad: tensor 0 is 'off'`" in text
    assert "- `a/none: ValueError: it is large`" in text
