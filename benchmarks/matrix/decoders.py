"""Language models that decode, of transformers: dense, of experts, and recurrent."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.builders import VOCABULARY, of_transformers, tokens
from benchmarks.processes.models import ModelCase

_USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SPECIAL = {k: v for k, v in _USUAL.items() if k.endswith("token_id")}


def _decoder(name: str, model: str, **settings: Any) -> ModelCase:
    return of_transformers("decoder", name, model, tokens(), **settings)


def _usual(name: str, model: str, without: tuple[str, ...] = (), **settings: Any) -> ModelCase:
    usual = {k: v for k, v in _USUAL.items() if k not in without}
    return _decoder(name, model, **{**usual, **settings})


def _kind(family: str, name: str, model: str, **settings: Any) -> ModelCase:
    return of_transformers(family, name, model, tokens(), **{**_USUAL, **settings})


_TWO_KINDS = ["sliding_attention", "full_attention"]

DECODERS = (
    _decoder(
        "gpt2", "GPT2LMHeadModel", vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4,
        n_positions=64, **_SPECIAL,
    ),
    _decoder(
        "gpt_neo", "GPTNeoForCausalLM", vocab_size=VOCABULARY, hidden_size=64, num_layers=2,
        num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8,
        max_position_embeddings=64, **_SPECIAL,
    ),
    _decoder(
        "gptj", "GPTJForCausalLM", vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4,
        rotary_dim=8, n_positions=64, **_SPECIAL,
    ),
    _decoder(
        "bloom", "BloomForCausalLM", vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4,
        **_SPECIAL,
    ),
    _decoder(
        "opt", "OPTForCausalLM", vocab_size=VOCABULARY, hidden_size=64, ffn_dim=128,
        num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
        word_embed_proj_dim=32, do_layer_norm_before=False, **_SPECIAL,
    ),
    _decoder(
        "falcon", "FalconForCausalLM", vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, **_SPECIAL,
    ),
    _usual("gpt_neox", "GPTNeoXForCausalLM", ("num_key_value_heads",)),
    _usual("llama", "LlamaForCausalLM"),
    _usual("mistral", "MistralForCausalLM", sliding_window=8),
    _usual("qwen2", "Qwen2ForCausalLM"),
    _usual("qwen3", "Qwen3ForCausalLM", head_dim=16),
    _usual("gemma", "GemmaForCausalLM", head_dim=16),
    _usual(
        "gemma2", "Gemma2ForCausalLM", head_dim=16, sliding_window=8, layer_types=_TWO_KINDS,
        query_pre_attn_scalar=16,
    ),
    _usual(
        "gemma3", "Gemma3ForCausalLM", head_dim=16, sliding_window=8, layer_types=_TWO_KINDS,
        query_pre_attn_scalar=16,
    ),
    _usual("phi", "PhiForCausalLM"),
    _usual("phi3", "Phi3ForCausalLM"),
    _usual("olmo2", "Olmo2ForCausalLM"),
    _usual("starcoder2", "Starcoder2ForCausalLM"),
    _usual("stablelm", "StableLmForCausalLM", use_qkv_bias=True),
    _usual("granite", "GraniteForCausalLM"),
    _usual("cohere", "CohereForCausalLM", use_qk_norm=True),
)  # fmt: skip

EXPERTS = tuple(
    _kind("experts", *of, **settings)
    for of, settings in (
        (("mixtral", "MixtralForCausalLM"), {"num_local_experts": 4}),
        (
            ("qwen2_moe", "Qwen2MoeForCausalLM"),
            {
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "shared_expert_intermediate_size": 64,
                "mlp_only_layers": [0],
            },
        ),
        (("olmoe", "OlmoeForCausalLM"), {"num_experts": 4, "num_experts_per_tok": 2}),
        (
            ("gpt_oss", "GptOssForCausalLM"),
            {
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "head_dim": 16,
                "sliding_window": 8,
                "layer_types": _TWO_KINDS,
            },
        ),
        (
            ("deepseek_v3", "DeepseekV3ForCausalLM"),
            {
                "num_key_value_heads": 4,
                "n_routed_experts": 4,
                "n_group": 2,
                "topk_group": 1,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "first_k_dense_replace": 1,
                "q_lora_rank": 16,
                "kv_lora_rank": 16,
                "qk_rope_head_dim": 8,
                "qk_nope_head_dim": 8,
                "v_head_dim": 16,
            },
        ),
    )
)

RECURRENT = (
    *(
        of_transformers(
            "state space", name, model, tokens(), vocab_size=VOCABULARY, hidden_size=64,
            state_size=8, num_hidden_layers=2, **_SPECIAL, **settings,
        )
        for name, model, settings in (
            ("mamba", "MambaForCausalLM", {}),
            ("mamba2", "Mamba2ForCausalLM",
             {"num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 8}),
            ("falcon_mamba", "FalconMambaForCausalLM", {}),
        )
    ),
    of_transformers(
        "state space", "rwkv", "RwkvForCausalLM", tokens(), vocab_size=VOCABULARY, hidden_size=64,
        attention_hidden_size=64, num_hidden_layers=2, context_length=64, **_SPECIAL,
    ),
    _kind(
        "state space", "recurrent_gemma", "RecurrentGemmaForCausalLM", lru_width=64,
        attention_window_size=8, block_types=["recurrent", "attention"], head_dim=16,
    ),
)  # fmt: skip
