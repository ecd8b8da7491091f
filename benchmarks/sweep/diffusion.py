"""Small models of diffusers, by the name of their class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

# What a model is made of, and what it takes.
Made = tuple[Mapping[str, Any], Callable[[], dict[str, Any]]]


def _image(*shape: int, name: str = "sample", **more: tuple[int, ...]) -> dict[str, Any]:
    found = {name: torch.randn(2, *shape)}
    return found | {key: torch.randn(2, *sizes) for key, sizes in more.items()}


def _timed(*shape: int, name: str = "sample", **more: tuple[int, ...]) -> dict[str, Any]:
    return {**_image(*shape, name=name, **more), "timestep": torch.tensor([3, 500])}


_BLOCKS: Mapping[str, Any] = {
    "layers_per_block": 1,
    "block_out_channels": (16, 32),
    "norm_num_groups": 4,
}
_CONDITION: Mapping[str, Any] = {
    **_BLOCKS,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "cross_attention_dim": 32,
    "attention_head_dim": 4,
}
_UP = {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
_CODER: Mapping[str, Any] = {
    **_BLOCKS,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
_HEADS: Mapping[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}


def _places(rows: int, columns: int, words: int) -> dict[str, Tensor]:
    """Where patches and words are, for Flux and its relatives."""
    down, across = torch.meshgrid(
        torch.arange(float(rows)), torch.arange(float(columns)), indexing="ij"
    )
    images = torch.stack([torch.zeros(rows, columns), down, across], -1).reshape(-1, 3)
    return {"img_ids": images, "txt_ids": torch.zeros(words, 3), "timestep": torch.rand(2)}


MODELS: Mapping[str, Made] = {
    "UNet1DModel": (
        {
            "sample_size": 16, "in_channels": 14, "out_channels": 14, "time_embedding_type":
            "positional", "use_timestep_embedding": True, "flip_sin_to_cos": False, "freq_shift":
            1.0, "block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1,
            "down_block_types": ("DownResnetBlock1D", "DownResnetBlock1D"),
            "up_block_types": ("UpResnetBlock1D",), "mid_block_type": "MidResTemporalBlock1D",
            "out_block_type": "OutConv1DBlock", "act_fn": "swish",
        },
        lambda: {"sample": torch.randn(2, 14, 16), "timestep": torch.tensor([10, 10])},
    ),
    "UNet2DModel": (
        {
            **_BLOCKS, "sample_size": 16, "attention_head_dim": 4,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        lambda: _timed(3, 16, 16),
    ),
    "UNet2DConditionModel": (
        {**_CONDITION, **_UP, "sample_size": 16},
        lambda: _timed(4, 16, 16, encoder_hidden_states=(8, 32))
    ),
    "UNet3DConditionModel": (
        {
            **_BLOCKS, "sample_size": 16, "cross_attention_dim": 32, "attention_head_dim": 4,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        lambda: _timed(4, 4, 16, 16, encoder_hidden_states=(8, 32)),
    ),
    "UNetSpatioTemporalConditionModel": (
        {
            "sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1,
            "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
            "cross_attention_dim": 32, "num_attention_heads": 2, "in_channels": 8,
            "out_channels": 4, "projection_class_embeddings_input_dim": 96,
            "addition_time_embed_dim": 32,
        },
        lambda: {
            "sample": torch.randn(2, 2, 8, 16, 16), "timestep": torch.tensor(10),
            "encoder_hidden_states": torch.randn(2, 1, 32), "added_time_ids": torch.rand(2, 3),
        },
    ),
    "UVit2DModel": (
        {
            "hidden_size": 32, "cond_embed_dim": 32, "encoder_hidden_size": 32, "vocab_size": 40,
            "codebook_size": 39, "in_channels": 32, "block_out_channels": 32, "num_res_blocks": 1,
            "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
            "micro_cond_encode_dim": 8, "micro_cond_embed_dim": 40,
        },
        lambda: {
            "input_ids": torch.randint(0, 39, (2, 8, 8)), "micro_conds": torch.rand(2, 5),
            "encoder_hidden_states": torch.randn(2, 7, 32), "pooled_text_emb": torch.randn(2, 32),
        },
    ),
    "ControlNetModel": (
        {**_CONDITION, "conditioning_embedding_out_channels": (8, 16)},
        lambda: _timed(
            4, 16, 16, encoder_hidden_states=(8, 32), controlnet_cond=(3, 32, 32)
        ),
    ),
    "AutoencoderKL": (_CODER, lambda: _image(3, 32, 32)),
    "AsymmetricAutoencoderKL": (
        {
            "down_block_types": ("DownEncoderBlock2D",) * 2, "down_block_out_channels": (16, 32),
            "layers_per_down_block": 1, "up_block_types": ("UpDecoderBlock2D",) * 2,
            "up_block_out_channels": (16, 32), "layers_per_up_block": 1, "norm_num_groups": 4,
            "sample_size": 32,
        },
        lambda: _image(3, 32, 32),
    ),
    "AutoencoderTiny": (
        {
            "encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1),
        },
        lambda: _image(3, 32, 32),
    ),
    "AutoencoderKLTemporalDecoder": (
        {
            "block_out_channels": (32, 64), "layers_per_block": 1,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
        },
        lambda: {"sample": torch.randn(2, 3, 32, 32), "num_frames": 2},
    ),
    "AutoencoderKLWan": (
        {
            "base_dim": 4, "z_dim": 16, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1,
            "temperal_downsample": [False, True, True],
        },
        lambda: _image(3, 5, 16, 16),
    ),
    "AutoencoderDC": (
        {
            "latent_channels": 4, "attention_head_dim": 2, "encoder_block_types": (
            "ResBlock", "EfficientViTBlock"), "decoder_block_types": ("ResBlock",
            "EfficientViTBlock"), "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8), "encoder_qkv_multiscales": ((), (5,)),
            "decoder_qkv_multiscales": ((), (5,)), "encoder_layers_per_block": (1, 1),
            "decoder_layers_per_block": [1, 1], "downsample_block_type": "conv",
            "upsample_block_type": "interpolate", "decoder_norm_types": "rms_norm",
            "decoder_act_fns": "silu",
        },
        lambda: _image(3, 32, 32),
    ),
    "AutoencoderOobleck": (
        {
            "encoder_hidden_size": 12, "decoder_channels": 12, "decoder_input_channels": 6,
            "audio_channels": 2, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2],
        },
        lambda: {"sample": torch.randn(2, 2, 64)},
    ),
    "VQModel": (
        {
            **_CODER, "latent_channels": 3, "num_vq_embeddings": 32,
        },
        lambda: _image(3, 32, 32),
    ),
    "PriorTransformer": (
        {
            **_HEADS, "attention_head_dim": 8, "embedding_dim": 16, "num_embeddings": 7,
            "additional_embeddings": 4,
        },
        lambda: {
            "hidden_states": torch.randn(2, 16), "timestep": 2, "proj_embedding": torch.randn(
                2, 16), "encoder_hidden_states": torch.randn(2, 7, 16),
        },
    ),
    "Transformer2DModel": (
        {**_HEADS, "in_channels": 32, "num_layers": 1, "norm_num_groups": 8},
        lambda: {"hidden_states": torch.randn(2, 32, 8, 8)},
    ),
    "DiTTransformer2DModel": (
        {**_HEADS, "in_channels": 4, "sample_size": 16, "patch_size": 4},
        lambda: _timed(4, 16, 16, name="hidden_states") | {"class_labels": torch.tensor([1, 7])},
    ),
    "PixArtTransformer2DModel": (
        {
            **_HEADS, "sample_size": 8, "in_channels": 4, "out_channels": 8, "cross_attention_dim":
            32, "caption_channels": 32, "patch_size": 2,
        },
        lambda: _timed(4, 8, 8, name="hidden_states", encoder_hidden_states=(8, 32)) | {
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}
        },
    ),
    "SD3Transformer2DModel": (
        {
            **_HEADS, "sample_size": 16, "patch_size": 2, "in_channels": 4, "out_channels": 4,
            "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 64,
        },
        lambda: _timed(
            4, 16, 16, name="hidden_states", encoder_hidden_states=(8, 32), pooled_projections=(64,)
        ),
    ),
    "FluxTransformer2DModel": (
        {
            "patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1,
            "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32,
            "pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8),
        },
        lambda: _image(
            16, 4, name="hidden_states", encoder_hidden_states=(8, 32), pooled_projections=(32,)
        ) | _places(4, 4, 8),
    ),
    "AuraFlowTransformer2DModel": (
        {
            "sample_size": 16, "patch_size": 2, "in_channels": 4, "num_mmdit_layers": 1,
            "num_single_dit_layers": 1, "attention_head_dim": 8, "num_attention_heads": 4,
            "caption_projection_dim": 32, "joint_attention_dim": 32, "out_channels": 4,
            "pos_embed_max_size": 256,
        },
        lambda: _image(4, 16, 16, name="hidden_states", encoder_hidden_states=(8, 32)) | {
            "timestep": torch.rand(2)
        },
    ),
    "SanaTransformer2DModel": (
        {
            "patch_size": 1, "in_channels": 4, "out_channels": 4, "num_layers": 1,
            "attention_head_dim": 4, "num_attention_heads": 2, "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 4, "cross_attention_dim": 8, "caption_channels": 8,
            "sample_size": 16,
        },
        lambda: _timed(4, 16, 16, name="hidden_states", encoder_hidden_states=(8, 8)),
    ),
    "CogVideoXTransformer3DModel": (
        {
            "num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "out_channels": 4,
            "time_embed_dim": 4, "text_embed_dim": 8, "num_layers": 2, "sample_width": 8,
            "sample_height": 8, "sample_frames": 8, "patch_size": 2, "temporal_compression_ratio":
            4, "max_text_seq_length": 8,
        },
        lambda: _timed(2, 4, 8, 8, name="hidden_states", encoder_hidden_states=(8, 8)),
    ),
    "WanTransformer3DModel": (
        {
            "patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 12,
            "in_channels": 4, "out_channels": 4, "text_dim": 16, "freq_dim": 256, "ffn_dim": 32,
            "num_layers": 2, "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads",
            "rope_max_seq_len": 32,
        },
        lambda: _timed(4, 2, 16, 16, name="hidden_states", encoder_hidden_states=(12, 16)),
    ),
    "LTXVideoTransformer3DModel": (
        {
            "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8,
            "cross_attention_dim": 16, "num_layers": 1, "caption_channels": 16,
        },
        lambda: _timed(32, 4, name="hidden_states", encoder_hidden_states=(8, 16)) | {
            "encoder_attention_mask": torch.ones(2, 8), "num_frames": 2, "height": 4, "width": 4,
        },
    ),
    "MochiTransformer3DModel": (
        {
            "patch_size": 2, "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2,
            "pooled_projection_dim": 16, "in_channels": 12, "out_channels": None,
            "qk_norm": "rms_norm", "text_embed_dim": 16, "time_embed_dim": 4,
            "activation_fn": "swiglu", "max_sequence_length": 16,
        },
        lambda: _timed(12, 2, 16, 16, name="hidden_states", encoder_hidden_states=(16, 16)) | {
            "encoder_attention_mask": torch.ones(2, 16, dtype=torch.bool)
        },
    ),
    "StableAudioDiTModel": (
        {
            "sample_size": 4, "in_channels": 4, "num_layers": 2, "attention_head_dim": 4,
            "num_attention_heads": 2, "num_key_value_attention_heads": 2, "out_channels": 4,
            "cross_attention_dim": 4, "time_proj_dim": 8, "global_states_input_dim": 8,
            "cross_attention_input_dim": 4,
        },
        lambda: _timed(4, 4, name="hidden_states", encoder_hidden_states=(8, 4),
                       global_hidden_states=(1, 8)),
    ),
}  # fmt: skip


def model_of(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model with random weights, and arguments that it takes."""
    import diffusers

    settings, arguments = MODELS[kind]
    torch.manual_seed(0)
    model = getattr(diffusers, kind)(**settings).eval()
    return model, arguments()
