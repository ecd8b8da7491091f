"""Encoders, and encoders with decoders, of transformers."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.builders import (
    VOCABULARY,
    normal,
    of_transformers,
    together,
    tokens,
)
from benchmarks.processes.models import ModelCase

_USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def _encoder(name: str, model: str, **settings: Any) -> ModelCase:
    return of_transformers("encoder", name, model, tokens(), **{**_USUAL, **settings})


ENCODERS = (
    _encoder("bert", "BertModel"),
    _encoder("roberta", "RobertaForMaskedLM"),
    of_transformers(
        "encoder", "distilbert", "DistilBertModel", tokens(), vocab_size=VOCABULARY, dim=64,
        hidden_dim=128, n_layers=2, n_heads=4, max_position_embeddings=64,
    ),
    _encoder("albert", "AlbertModel", embedding_size=32),
    _encoder("electra", "ElectraForPreTraining", embedding_size=32),
    _encoder(
        "deberta_v2", "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True,
    ),
    _encoder(
        "esm", "EsmModel", position_embedding_type="rotary", token_dropout=True, mask_token_id=3
    ),
    _encoder(
        "modernbert", "ModernBertModel", global_attn_every_n_layers=2, local_attention=8,
        reference_compile=False, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2,
    ),
    _encoder("mpnet", "MPNetModel"),
    _encoder("fnet", "FNetModel"),
    _encoder("squeezebert", "SqueezeBertModel", embedding_size=64),
)  # fmt: skip

_BOTH = tokens("input_ids", "decoder_input_ids")
_HALVES: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}

ENCODER_DECODERS = (
    of_transformers("encoder-decoder", "t5", "T5ForConditionalGeneration", _BOTH, **_T5),
    of_transformers(
        "encoder-decoder", "umt5", "UMT5ForConditionalGeneration", _BOTH, **_T5,
        feed_forward_proj="gated-gelu",
    ),
    of_transformers(
        "encoder-decoder", "bart", "BartForConditionalGeneration", _BOTH, **_HALVES,
        max_position_embeddings=64, forced_eos_token_id=2,
    ),
    of_transformers(
        "encoder-decoder", "pegasus", "PegasusForConditionalGeneration", _BOTH, **_HALVES,
        max_position_embeddings=64, forced_eos_token_id=2,
    ),
    of_transformers(
        "encoder-decoder", "marian", "MarianMTModel", _BOTH, **_HALVES,
        max_position_embeddings=64, forced_eos_token_id=2,
    ),
    of_transformers(
        "encoder-decoder", "whisper", "WhisperForConditionalGeneration",
        together(normal("input_features", 16, 48), tokens("decoder_input_ids")), **_HALVES,
        num_mel_bins=16, max_source_positions=24, max_target_positions=32,
    ),
)  # fmt: skip
