"""A Llama of transformers in tinygrad, with the same weights (Touvron et al., 2023).

tinygrad runs no PyTorch models, so the architecture is written down once more: embedding, layers
of attention with rotary positions and of a gated MLP, both behind root mean square norms, and the
head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tinygrad import Tensor, TinyJit, dtypes

_DTYPES = {
    torch.float32: dtypes.float32,
    torch.float16: dtypes.float16,
    torch.bfloat16: dtypes.bfloat16,
}


def llama(model: Any) -> Callable[..., list[torch.Tensor]]:
    """The function of a ``LlamaForCausalLM``.

    Args:
        model: Of float32, float16 or bfloat16, on CPU.

    Returns:
        What takes ``input_ids`` ``[batch, length]`` without padding, always of the same sizes, and
        returns the logits ``[batch, length, vocabulary]``.

    Raises:
        ValueError: The configuration has what is not written down here.
    """
    config = model.config
    scaled = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if config.attention_bias or config.mlp_bias or scaled != "default":
        raise ValueError("biases and scaled rotary positions are not written down in tinygrad")
    weights = {name: _tensor(value) for name, value in model.state_dict().items()}
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    forward = TinyJit(lambda tokens: _forward(weights, config, tokens).realize())
    dtype = next(model.parameters()).dtype

    def call(input_ids: torch.Tensor, **others: Any) -> list[torch.Tensor]:
        logits = forward(Tensor(input_ids.int().numpy()).realize())
        return [torch.from_numpy(logits.float().numpy()).to(dtype)]

    return call


def _tensor(value: torch.Tensor) -> Tensor:
    kind = _DTYPES[value.dtype]
    return Tensor(value.detach().float().numpy()).cast(kind).realize()


def _forward(weights: Mapping[str, Tensor], config: Any, tokens: Tensor) -> Tensor:
    x = weights["model.embed_tokens.weight"][tokens]
    turn = _angles(config, tokens.shape[1])
    for i in range(config.num_hidden_layers):
        layer = {
            name.removeprefix(f"model.layers.{i}."): value
            for name, value in weights.items()
            if name.startswith(f"model.layers.{i}.")
        }
        normed = _norm(x, layer["input_layernorm.weight"], config)
        x = x + _attention(normed, layer, config, turn)
        normed = _norm(x, layer["post_attention_layernorm.weight"], config)
        gate = normed.linear(layer["mlp.gate_proj.weight"].T).silu()
        up = normed.linear(layer["mlp.up_proj.weight"].T)
        x = x + (gate * up).linear(layer["mlp.down_proj.weight"].T)
    return _norm(x, weights["model.norm.weight"], config).linear(weights["lm_head.weight"].T)


def _norm(x: Tensor, weight: Tensor, config: Any) -> Tensor:
    wide = x.float()
    scale = (wide.square().mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
    return (wide * scale).cast(x.dtype) * weight


def _attention(
    x: Tensor, layer: Mapping[str, Tensor], config: Any, turn: tuple[Tensor, Tensor]
) -> Tensor:
    batch, length, _ = x.shape

    def heads(name: str, count: int) -> Tensor:
        made = x.linear(layer[f"self_attn.{name}_proj.weight"].T)
        return made.reshape(batch, length, count, -1).transpose(1, 2)

    many, few = config.num_attention_heads, config.num_key_value_heads
    q, k = _turned(heads("q", many), turn), _turned(heads("k", few), turn)
    result = q.scaled_dot_product_attention(k, heads("v", few), is_causal=True, enable_gqa=True)
    result = result.transpose(1, 2).reshape(batch, length, -1)
    return result.linear(layer["self_attn.o_proj.weight"].T)


def _angles(config: Any, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the positions, ``[length, width of a head]``."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0)
    steps = theta ** -(torch.arange(0, width, 2).float() / width)
    angles = torch.outer(torch.arange(length).float(), steps).repeat(1, 2)
    return Tensor(angles.cos().numpy()), Tensor(angles.sin().numpy())


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cosine, sine = (t.cast(x.dtype) for t in turn)
    return x * cosine + (-second).cat(first, dim=-1) * sine


__all__ = ["llama"]
