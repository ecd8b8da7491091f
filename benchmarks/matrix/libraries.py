"""Models of timm, torchvision and diffusers."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.matrix.builders import Inputs, normal, of_library, together
from benchmarks.processes.models import ModelCase


def _timm(model: str, side: int = 64, **settings: Any) -> ModelCase:
    return of_library(
        "timm", f"timm/{model}", "timm", "create_model", normal("x", 3, side, side),
        model_name=model, pretrained=False, num_classes=16, **settings,
    )  # fmt: skip


_SHALLOW = (1, 1, 1, 1)

TIMM = (
    _timm("resnet18"),
    _timm("resnet50d", layers=_SHALLOW),
    _timm("seresnext26t_32x4d", layers=_SHALLOW),
    _timm("efficientnet_b0"),
    _timm("mobilenetv3_small_050"),
    _timm("vit_tiny_patch16_224", img_size=64, depth=2),
    _timm("deit_tiny_distilled_patch16_224", img_size=64, depth=2),
    _timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24, depths=(2, 2),
          num_heads=(2, 4)),
    _timm("convnext_atto", depths=_SHALLOW),
    _timm("mixer_s32_224", img_size=64),
    _timm("coatnet_pico_rw_224", img_size=64, depths=_SHALLOW),
    _timm("maxvit_rmlp_pico_rw_256", img_size=64, depths=_SHALLOW),
    _timm("regnetx_002"),
    _timm("densenet121", block_config=(2, 2, 2, 2)),
    _timm("ghostnet_050"),
    _timm("edgenext_xx_small"),
    _timm("poolformer_s12", layers=_SHALLOW),
    _timm("nf_regnet_b0"),
    _timm("levit_128s", img_size=64),
    _timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    _timm("cait_xxs24_224", img_size=64, depth=2),
    _timm("xcit_nano_12_p16_224", img_size=64, depth=2),
    _timm("repvgg_a0"),
)  # fmt: skip


def _torchvision(
    name: str, function: str, side: int = 64, module: str = "torchvision.models", **settings: Any
) -> ModelCase:
    return of_library(
        "torchvision", f"torchvision/{name}", module, function, normal("x", 3, side, side),
        **settings,
    )  # fmt: skip


_NO_WEIGHTS: dict[str, Any] = {"weights": None, "weights_backbone": None, "num_classes": 5}


def _segmentation(model: str, argument: str) -> ModelCase:
    return of_library(
        "torchvision", f"torchvision/{model}", "torchvision.models.segmentation", model,
        normal(argument, 3, 64, 64), **_NO_WEIGHTS,
    )  # fmt: skip


def _detection(model: str, **settings: Any) -> ModelCase:
    return of_library(
        "torchvision", f"torchvision/{model}", "torchvision.models.detection", model,
        lambda batch, length: {"images": [torch.rand(3, 96, 96) for _ in range(batch)]},
        **_NO_WEIGHTS, **settings,
    )  # fmt: skip


TORCHVISION = (
    _torchvision("resnet18", "resnet18"),
    _torchvision("mobilenet_v3_small", "mobilenet_v3_small"),
    _torchvision("efficientnet_b0", "efficientnet_b0"),
    _torchvision("densenet", "DenseNet", growth_rate=8, block_config=(2, 2), num_init_features=16),
    _torchvision("shufflenet_v2_x0_5", "shufflenet_v2_x0_5"),
    _torchvision("squeezenet1_1", "squeezenet1_1"),
    _torchvision("googlenet", "googlenet", init_weights=False, aux_logits=False),
    _torchvision("mnasnet0_5", "mnasnet0_5"),
    _torchvision("vit", "VisionTransformer", image_size=64, patch_size=16, num_layers=2,
                 num_heads=4, hidden_dim=64, mlp_dim=128),
    _torchvision("swin", "SwinTransformer", patch_size=[4, 4], embed_dim=24, depths=[2, 2],
                 num_heads=[2, 4], window_size=[4, 4]),
    _segmentation("deeplabv3_mobilenet_v3_large", "x"),
    _segmentation("lraspp_mobilenet_v3_large", "input"),
    _detection("ssdlite320_mobilenet_v3_large"),
    _detection("fasterrcnn_mobilenet_v3_large_320_fpn", min_size=96, max_size=96),
)  # fmt: skip


def _diffusers(name: str, kind: str, *inputs: Inputs, **settings: Any) -> ModelCase:
    return of_library(
        "diffusers", f"diffusers/{name}", "diffusers", kind, together(*inputs), **settings
    )


def _steps(batch: int, length: int) -> dict[str, Any]:
    return {"timestep": torch.randint(0, 1000, (batch,))}


def _labels(batch: int, length: int) -> dict[str, Any]:
    return {"class_labels": torch.randint(0, 10, (batch,))}


def _places(batch: int, length: int) -> dict[str, Any]:
    """Of 4 x 4 patches and 8 words, and the time."""
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    images = torch.stack([torch.zeros(4, 4), rows, columns], -1).reshape(16, 3)
    return {"img_ids": images, "txt_ids": torch.zeros(8, 3), "timestep": torch.rand(batch)}


DIFFUSERS = (
    _diffusers(
        "unet_2d_condition", "UNet2DConditionModel",
        normal("sample", 4, 16, 16, encoder_hidden_states=(8, 32)), _steps, sample_size=16,
        layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=32,
        attention_head_dim=4,
    ),
    _diffusers(
        "autoencoder_kl", "AutoencoderKL", normal("sample", 3, 32, 32), layers_per_block=1,
        block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4,
    ),
    _diffusers(
        "dit", "DiTTransformer2DModel", normal("hidden_states", 4, 16, 16), _steps, _labels,
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16,
        patch_size=4,
    ),
    _diffusers(
        "flux", "FluxTransformer2DModel",
        normal("hidden_states", 16, 4, encoder_hidden_states=(8, 32), pooled_projections=(32,)),
        _places, patch_size=1, in_channels=4, num_layers=1, num_single_layers=1,
        attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
        pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    ),
)  # fmt: skip
