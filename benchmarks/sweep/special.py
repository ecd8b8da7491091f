"""What rules do not tell of configurations: fields and arguments of single architectures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# The heads of a state space, so that they are as wide as what goes in: 2 x 64.
_HEADS = {"num_heads": 8, "head_dim": 16}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16}
_SERIES = {"context_length": 16, "prediction_length": 8}
_XLM = {"emb_dim": 64, "n_words": 256, "n_heads": 4, "n_layers": 2}
_JAMBA = {"attn_layer_offset": 1, "attn_layer_period": 2}

# By the type of a configuration: fields that it has, and what they are in a small one.
FIELDS: dict[str, dict[str, Any]] = {
    "autoformer": _SERIES,
    "bamba": _MAMBA,
    "codegen": {"rotary_dim": 8},
    "cvt": {"depth": [1, 2, 3]},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2},
    "deepseek_v2": {"num_key_value_heads": 4, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "ernie4_5_moe": {"moe_k": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 128},
    "flaubert": _XLM,
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": _MAMBA | {"layer_types": ["linear_attention", "full_attention"]},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "hunyuan_vl_text": {"head_dim": 16},
    "informer": _SERIES,
    "jamba": _JAMBA | {"expert_layer_offset": 1, "expert_layer_period": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": _HEADS,
    "mimi": {"upsample_groups": 64},
    "ministral": {"head_dim": 16},
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "perceiver": {
        "d_latents": 64,
        "num_latents": 16,
        "d_model": 64,
        "num_self_attends_per_block": 2,
    },
    "time_series_transformer": _SERIES,
    "xlm": _XLM,
    "xmod": {"default_language": "en_XX"},
}


def _series() -> dict[str, Any]:
    # As many as the context and the largest of the lags.
    return {
        "past_values": torch.randn(2, 23),
        "past_time_features": torch.randn(2, 23, 0),
        "past_observed_mask": torch.ones(2, 23),
        "future_values": torch.randn(2, 8),
        "future_time_features": torch.randn(2, 8, 0),
    }


def _siglip2() -> dict[str, Any]:
    return {
        "pixel_values": torch.randn(2, 16, 768),
        "pixel_attention_mask": torch.ones(2, 16, dtype=torch.long),
        "spatial_shapes": torch.tensor([[4, 4], [2, 8]]),
    }


def _decisions() -> dict[str, Any]:
    return {
        "states": torch.randn(2, 8, 17),
        "actions": torch.randn(2, 8, 4),
        "rewards": torch.randn(2, 8, 1),
        "returns_to_go": torch.randn(2, 8, 1),
        "timesteps": torch.arange(8).expand(2, 8),
        "attention_mask": torch.ones(2, 8),
    }


def _timesfm() -> dict[str, Any]:
    return {
        "past_values": torch.randn(2, 64),
        "past_values_padding": torch.zeros(2, 64, dtype=torch.long),
        "freq": torch.zeros(2, 1, dtype=torch.long),
    }


def _visual() -> dict[str, Any]:
    return {
        "input_ids": torch.randint(6, 256, (2, 16)),
        "visual_feats": torch.randn(2, 8, 2048),
        "visual_pos": torch.rand(2, 8, 4),
    }


# By the type of a configuration: what its model takes.
ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "autoformer": _series,
    "decision_transformer": _decisions,
    "informer": _series,
    "lxmert": _visual,
    "perceiver": lambda: {"inputs": torch.randn(2, 24, 64)},
    "siglip2": lambda: {"input_ids": torch.randint(6, 256, (2, 16))} | _siglip2(),
    "siglip2_vision_model": _siglip2,
    "time_series_transformer": _series,
    "timesfm": _timesfm,
}
