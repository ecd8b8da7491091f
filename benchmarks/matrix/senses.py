"""Vision, audio and several at once, of transformers."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.matrix.builders import (
    VOCABULARY,
    normal,
    of_transformers,
    together,
    tokens,
)

_USUAL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_SMALL = normal("pixel_values", 3, 32, 32)
_LARGE = normal("pixel_values", 3, 64, 64)
_RESNET = {
    "class": "ResNetConfig",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 32, 64],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}

VISION = (
    of_transformers("vision", "vit", "ViTModel", _SMALL, **_USUAL, image_size=32, patch_size=8),
    of_transformers(
        "vision", "swin", "SwinModel", _LARGE, image_size=64, patch_size=4, embed_dim=16,
        depths=[2, 2], num_heads=[2, 4], window_size=4,
    ),
    of_transformers(
        "vision", "dinov2", "Dinov2Model", _SMALL, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, image_size=48, patch_size=8, use_swiglu_ffn=True,
    ),
    of_transformers(
        "vision", "convnextv2", "ConvNextV2Model", _LARGE, hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
    ),
    of_transformers(
        "vision", "segformer", "SegformerForSemanticSegmentation", _LARGE,
        hidden_sizes=[16, 32, 32, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32, num_labels=8,
    ),
    of_transformers(
        "vision", "yolos", "YolosForObjectDetection", _SMALL, **_USUAL, image_size=[32, 32],
        patch_size=8, num_detection_tokens=8,
    ),
    of_transformers(
        "vision", "detr", "DetrForObjectDetection", _LARGE, d_model=64, encoder_layers=1,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=8, backbone_config=_RESNET,
    ),
    of_transformers(
        "vision", "mobilevit", "MobileViTModel", _LARGE, image_size=64,
        neck_hidden_sizes=[8, 16, 16, 24, 32, 32, 64], hidden_sizes=[16, 24, 32],
        num_attention_heads=2,
    ),
    of_transformers(
        "vision", "sam", "SamVisionModel", _LARGE, **_USUAL, image_size=64, patch_size=8,
        output_channels=32, window_size=3, global_attn_indexes=[1], mlp_dim=128,
    ),
)  # fmt: skip

_WAVES = normal("input_values", 4000)
_WAVE: dict[str, Any] = {
    **_USUAL,
    "conv_dim": [16] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}

AUDIO = (
    of_transformers("audio", "wav2vec2", "Wav2Vec2ForCTC", _WAVES, **_WAVE),
    of_transformers("audio", "hubert", "HubertModel", _WAVES, **_WAVE),
    of_transformers("audio", "wavlm", "WavLMModel", _WAVES, **_WAVE),
    of_transformers(
        "audio", "ast", "ASTModel", normal("input_values", 64, 32), **_USUAL, max_length=64,
        num_mel_bins=32,
    ),
    of_transformers(
        "audio", "encodec", "EncodecModel", normal("input_values", 1, 640), num_filters=8,
        hidden_size=32, codebook_size=64, upsampling_ratios=[4, 2],
    ),
)  # fmt: skip

_TEXT = {**_USUAL, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0}
_PICTURE = {**_USUAL, "image_size": 32, "patch_size": 8}
_IMAGE_TOKEN = 3


def _with_images(per_image: int, *, patches: bool = False) -> Any:
    """Token ids of which so many stand for the image that comes with them."""

    def inputs(batch: int, length: int) -> dict[str, Any]:
        ids = torch.randint(8, VOCABULARY, (batch, length + per_image))
        ids[:, 2 : 2 + per_image] = _IMAGE_TOKEN
        made: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if patches:
            made["pixel_values"] = torch.randn(batch * 16, 3 * 2 * 8 * 8)
            made["image_grid_thw"] = torch.tensor([[1, 4, 4]] * batch)
            made["mm_token_type_ids"] = (ids == _IMAGE_TOKEN).int()
        else:
            made["pixel_values"] = torch.randn(batch, 3, 32, 32)
        return made

    return inputs


_CAUSAL_TEXT = {**_TEXT, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}

MULTIMODAL = (
    of_transformers(
        "multimodal", "clip", "CLIPModel", together(tokens(), _SMALL),
        text_config={**_TEXT, "eos_token_id": 2, "bos_token_id": 1}, vision_config=_PICTURE,
        projection_dim=32,
    ),
    of_transformers(
        "multimodal", "siglip", "SiglipModel", together(tokens(), _SMALL),
        text_config={**_TEXT, "eos_token_id": 2, "bos_token_id": 1}, vision_config=_PICTURE,
    ),
    of_transformers(
        "multimodal", "blip", "BlipForConditionalGeneration", together(tokens(), _SMALL),
        text_config={**_TEXT, "encoder_hidden_size": 64, "eos_token_id": 2, "bos_token_id": 1},
        vision_config=_PICTURE,
    ),
    of_transformers(
        "multimodal", "llava", "LlavaForConditionalGeneration", _with_images(16),
        text_config={"class": "LlamaConfig", **_CAUSAL_TEXT},
        vision_config={"class": "CLIPVisionConfig", **_PICTURE}, image_token_index=_IMAGE_TOKEN,
    ),
    of_transformers(
        "multimodal", "qwen2_vl", "Qwen2VLForConditionalGeneration", _with_images(4, patches=True),
        text_config={
            **_CAUSAL_TEXT,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]
            },
        },
        vision_config={
            "depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "patch_size": 8,
            "mlp_ratio": 2,
        },
        image_token_id=_IMAGE_TOKEN, video_token_id=4, vision_start_token_id=5,
        vision_end_token_id=6,
    ),
)  # fmt: skip
