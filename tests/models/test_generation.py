"""``generate`` of transformers with a compiled model: eager's tokens, and how many graphs are
compiled for them, as ``docs/generation.md`` says."""

from __future__ import annotations

import copy
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group

pytestmark = compile_group("generation", weight=7)

_WORDS = 128
_NEW_TOKENS = 10
# Largest difference of logits from eager's, relative to eager's largest.
_TOLERANCE = 2e-4
_CACHE_LENGTH = 48
_STATIC = {"cache_implementation": "static", "max_cache_len": _CACHE_LENGTH}

_TOKENS = {"vocab_size": _WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
_DECODER = {
    **_TOKENS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
_STATE_SPACE = {**_TOKENS, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 1}
_T5 = {
    **_TOKENS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 1,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_EXPERTS = {**_DECODER, "num_local_experts": 4, "num_experts_per_tok": 2}

# The class of a model, the class of its configuration, and that one's arguments.
_MODELS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", _DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_DECODER, "sliding_window": 8}),
    "mamba": ("MambaForCausalLM", "MambaConfig", _STATE_SPACE),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", _EXPERTS),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5),
}


@dataclass(frozen=True)
class Case:
    """One way to generate.

    Attributes:
        model: A key of ``_MODELS``.
        graphs: How many graphs the first call of ``generate`` compiles.
        arguments: Those of ``generate``.
        padding: How many tokens are padding at the left of each prompt of the batch.
    """

    model: str
    graphs: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    padding: tuple[int, ...] = (0,)


CASES = {
    "static cache of a window": Case("mistral", 3, _STATIC),
    "dynamic cache of a window": Case("mistral", 4),
    "batch with padding": Case("llama", 2, _STATIC, padding=(0, 3, 1)),
    "beam search": Case("llama", 2, {**_STATIC, "num_beams": 3}),
    "sampling": Case("llama", 2, {**_STATIC, "do_sample": True, "top_k": 20, "temperature": 0.9}),
    "mixture of experts": Case("mixtral", 2, _STATIC),
    "encoder and decoder": Case("t5", 2, _STATIC),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def _graphs() -> int:
    """How many graphs were compiled; a graph break is an error of the test."""
    assert not torch._dynamo.utils.counters["graph_break"]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def _model(name: str, seed: int = 0, scale: float = 4.0) -> Any:
    """A model with random weights, large enough that its tokens differ from each other."""
    import transformers

    model_class, config_class, config = _MODELS[name]
    torch.manual_seed(seed)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    return model.eval()


def _compile(model: Any) -> None:
    model.compile(backend="max", options={"fallback": "error"})


def _prompt(seed: int, length: int = 6, batch: int = 1) -> Tensor:
    """int64 token ids ``[batch, length]``, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, _WORDS, (batch, length), generator=generator)


def _generate(model: Any, prompt: Tensor, new_tokens: int = _NEW_TOKENS, **arguments: Any) -> Any:
    torch.manual_seed(5)
    return model.generate(
        prompt,
        max_new_tokens=new_tokens,
        **{"do_sample": False, **arguments},
        output_logits=True,
        return_dict_in_generate=True,
    )


def _assert_equal(actual: Any, expected: Any) -> None:
    """The same tokens, of logits that are close."""
    assert actual.sequences.tolist() == expected.sequences.tolist()
    for ours, theirs in zip(actual.logits, expected.logits, strict=True):
        assert (ours - theirs).abs().max() < _TOLERANCE * theirs.abs().max()


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_eagers(name: str) -> None:
    """More tokens and another prompt of the same length compile nothing further."""
    case = CASES[name]
    eager = _model(case.model)
    compiled = copy.deepcopy(eager)
    _compile(compiled)
    for seed, new_tokens in (1, _NEW_TOKENS), (2, 2 * _NEW_TOKENS):
        prompt = _prompt(seed, batch=len(case.padding))
        mask = torch.ones_like(prompt)
        for row, padding in enumerate(case.padding):
            prompt[row, :padding] = mask[row, :padding] = 0
        expected = _generate(eager, prompt, new_tokens, attention_mask=mask, **case.arguments)
        actual = _generate(compiled, prompt, new_tokens, attention_mask=mask, **case.arguments)
        _assert_equal(actual, expected)
        assert _graphs() == case.graphs


@pytest.mark.parametrize(
    ("arguments", "dynamic", "graphs"),
    [(_STATIC, None, [2, 2, 3, 3]), ({}, None, [3, 3, 4, 4]), (_STATIC, True, [2, 2, 2, 2])],
    ids=["static cache", "dynamic cache", "static cache, dynamic=True"],
)
def test_prompts_of_other_lengths(
    arguments: Mapping[str, Any], dynamic: bool | None, graphs: list[int]
) -> None:
    eager = _model("llama")
    compiled = copy.deepcopy(eager)
    compiled.compile(backend="max", dynamic=dynamic, options={"fallback": "error"})
    found = []
    for length, new_tokens in (6, 10), (6, 20), (9, 10), (13, 10):
        prompt = _prompt(length, length)
        expected = _generate(eager, prompt, new_tokens, **arguments)
        _assert_equal(_generate(compiled, prompt, new_tokens, **arguments), expected)
        found.append(_graphs())
    assert found == graphs


def test_state_space() -> None:
    """The scan over a prompt halves its length again and again: how each half is rounded is part of
    the graph, and torch proves sizes equal that look different."""
    eager = _model("mamba")
    compiled = copy.deepcopy(eager)
    _compile(compiled)
    found = []
    for length, new_tokens in (6, 10), (6, 20), (9, 10):
        prompt = _prompt(length, length)
        _assert_equal(_generate(compiled, prompt, new_tokens), _generate(eager, prompt, new_tokens))
        found.append(_graphs())
    assert found == [2, 2, 3]


@pytest.mark.parametrize(("proposed_by", "most"), [("a model", 8), ("the prompt", 6)])
def test_proposed_tokens(proposed_by: str, most: int) -> None:
    """Data decides how many tokens are verified at once; from two on, all numbers share graphs."""
    eager = _model("llama")
    compiled = copy.deepcopy(eager)
    _compile(compiled)
    arguments: dict[str, Any] = {"prompt_lookup_num_tokens": 3}
    compiled_arguments = arguments
    if proposed_by == "a model":
        # Nearly the same model, so that some of its tokens are right.
        assistant = _model("llama", scale=4.2)
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        arguments = {"assistant_model": assistant}
        compiled_arguments = {"assistant_model": copy.deepcopy(assistant)}
        _compile(compiled_arguments["assistant_model"])
    found = []
    for seed, new_tokens in (1, 10), (5, 30), (5, 30):
        prompt = _prompt(seed)
        expected = _generate(eager, prompt, new_tokens, **arguments)
        _assert_equal(_generate(compiled, prompt, new_tokens, **compiled_arguments), expected)
        found.append(_graphs())
    assert found[1] == found[2] <= most


def _compiled_forward(model: Any) -> dict[str, Any]:
    model.forward = torch.compile(
        model.forward, backend="max", fullgraph=True, options={"fallback": "error"}
    )
    return {}


def _compile_config(model: Any) -> dict[str, Any]:
    from transformers import CompileConfig

    config = CompileConfig(backend="max", mode=None, options={"fallback": "error"})
    config._compile_all_devices = True
    return {"compile_config": config}


@pytest.mark.parametrize(
    ("compile_model", "graphs"),
    [(_compiled_forward, [2, 3]), (_compile_config, [1, 1])],
    ids=["forward", "compile_config"],
)
def test_other_roads(compile_model: Callable[[Any], dict[str, Any]], graphs: list[int]) -> None:
    """A compiled ``forward`` is what ``model.compile`` is; a ``compile_config`` leaves the prompt
    to eager PyTorch."""
    eager = _model("llama")
    compiled = copy.deepcopy(eager)
    arguments = compile_model(compiled)
    found = []
    for length in 6, 9:
        prompt = _prompt(length, length)
        expected = _generate(eager, prompt, **_STATIC)
        _assert_equal(_generate(compiled, prompt, **_STATIC, **arguments), expected)
        found.append(_graphs())
    assert found == graphs


def test_bfloat16() -> None:
    eager = _model("llama").bfloat16()
    compiled = copy.deepcopy(eager)
    _compile(compiled)
    expected = _generate(eager, _prompt(1), **_STATIC)
    actual = _generate(compiled, _prompt(1), **_STATIC)
    assert actual.sequences.tolist() == expected.sequences.tolist()
    assert _graphs() == 2


def _saved(folder: Path) -> Path:
    """A small Llama and a tokenizer of a few words, in a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "Once", "upon", "a", "time", *(f"word{k}" for k in range(5, _WORDS))]
    tokenizer = Tokenizer(models.WordLevel({w: k for k, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)
    _model("llama").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("saved", [False, True])
def test_the_example(
    saved: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = str(Path(__file__).parents[2] / "examples" / "generate.py")
    cache = "dynamic" if saved else "static"
    folder = [str(_saved(tmp_path)), "Once upon a time"] if saved else []
    monkeypatch.setattr(sys, "argv", [example, *folder, "--new-tokens", "6", "--cache", cache])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(example, run_name="__main__")
    assert ended.value.code == 0
    tokens, *lines = capsys.readouterr().out.splitlines()[-3:]
    assert len(tokens.split()) == 6
    assert [line.split()[:4] for line in lines] == [
        ["tokens", "a", "second,", "eager"],
        ["tokens", "a", "second,", "max"],
    ]
