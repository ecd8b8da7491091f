"""Small configurations of transformers' architectures: few layers, narrow, the same structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.sweep.special import FIELDS

LAYERS = 2

# By a part of the name of a field, what it becomes where it is a larger number. The first that fits
# decides.
_NUMBERS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("vocab_size",), 256),
    (("n_group", "num_group", "topk_group"), 1),
    (("num_experts_per", "top_k", "num_shared", "n_shared"), 1),
    (("num_experts", "num_local_experts", "n_routed_experts"), 4),
    (("key_value_heads", "kv_heads"), 2),
    (("attention_heads", "num_heads", "n_head", "n_heads", "decoder_heads", "encoder_heads"), 4),
    (("hidden_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers"), LAYERS),
    (("num_encoder_blocks_", "num_hidden_blocks", "num_blocks"), LAYERS),
    (("intermediate_size", "ffn_dim", "d_ff", "ffn_hidden", "inner_dim", "dim_feedforward"), 128),
    (("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "model_dim"), 64),
    (("head_dim", "d_kv", "kv_channels"), 16),
    (("max_position_embeddings", "n_positions", "max_sequence_length"), 128),
    (("image_size",), 64),
)
# Fields that only sound like one of those.
_KEPT = ("layer_norm", "num_hidden_layers_to", "initializer", "text_config", "vision_config")
_TURNED_BY_PLACE = ("vl", "glm4", "omni", "glm_image", "glm_ocr")
_TOKENS = ("_token_id", "_index", "_token_index")


def parts(config: Any) -> Iterator[Any]:
    """A configuration and those inside it."""
    from transformers import PretrainedConfig

    yield config
    for value in list(vars(config).values()):
        if isinstance(value, PretrainedConfig):
            yield from parts(value)


def small(config: Any, width: bool = True, grouped: bool = True) -> Any:
    """Make a configuration small, in place.

    Args:
        config: The configuration.
        width: Whether layers become narrow too; otherwise there are only fewer.
        grouped: Whether there are fewer heads of keys than of queries, where it says.
    """
    for part in parts(config):
        before = dict(vars(part))
        if not grouped and "num_key_value_heads" in before:
            _set(part, "num_key_value_heads", 4)
            del before["num_key_value_heads"]
        if "attn_layer_indices" in before:
            _set(part, "attn_layer_indices", [1])
        if before.get("prediction_length", 0) is None:
            _set(part, "prediction_length", 8)
        for name, value in before.items():
            made = _number(name, value, width)
            if made != value:
                _set(part, name, made)
        _lists(part, before)
        if width:
            _sections(part)
        for name, value in FIELDS.get(part.model_type, {}).items():
            _set(part, name, value)
    return config


def _sections(part: Any) -> None:
    """The features of a head that turn by time, row and column: as many as a narrow head has."""
    for name in ("rope_parameters", "rope_scaling"):
        known = vars(part).get(name)
        turning = any(word in part.model_type for word in _TURNED_BY_PLACE)
        if not isinstance(known, dict) or not (turning or "mrope_section" in known):
            continue
        turned = known.get("partial_rotary_factor", getattr(part, "partial_rotary_factor", 1.0))
        half = int(16 * (turned or 1.0)) // 2
        first, second = half // 4, (half - half // 4) // 2
        known["mrope_section"] = [first, second, half - first - second]


def _number(name: str, value: Any, width: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or any(k in name for k in _KEPT):
        return value
    if any(name.endswith(t) for t in _TOKENS):
        return value if value < 256 else 5
    for words, made in _NUMBERS:
        if any(word in name for word in words):
            keeps = not width and made not in (LAYERS, 256)
            return value if keeps or value <= made else made
    return value


def _lists(part: Any, before: Mapping[str, Any]) -> None:
    """Lists with an entry for each layer become as short as the layers are few."""
    # As many as layers; those that extract features from sound stay.
    counts = {
        v
        for k, v in before.items()
        if isinstance(v, int) and "layer" in k and v > LAYERS and "extract" not in k
    }
    for name, value in before.items():
        if isinstance(value, (list, tuple)) and len(value) in counts:
            # One of each kind of layer, if they differ.
            kinds = list(dict.fromkeys(map(str, value)))
            chosen = [next(v for v in value if str(v) == k) for k in kinds[:LAYERS]]
            chosen += list(value[: LAYERS - len(chosen)])
            _set(part, name, type(value)(chosen))
        elif name in ("depths", "layers", "num_layers", "depth") and _all_numbers(value):
            _set(part, name, type(value)(min(v, 1) for v in value))
        elif _all_numbers(value) and any(word in name for word in ("token_id",)):
            _set(part, name, [min(v, 5) for v in value])


def _all_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(type(v) is int for v in value)


def _set(part: Any, name: str, value: Any) -> None:
    try:
        setattr(part, name, value)
    except Exception:  # a property, or one that is checked
        return
