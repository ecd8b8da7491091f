"""Arguments for a model that nobody wrote any for: what its forward asks for, of some size."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.sweep.small import parts
from benchmarks.sweep.special import ARGUMENTS

LENGTH = 16


def _first(config: Any, *names: str, default: int) -> int:
    """A number that a configuration, or one inside it, has."""
    for name in names:
        for part in parts(config):
            value = vars(part).get(name)
            if isinstance(value, (list, tuple)) and value:
                value = value[0]
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return default


def _tokens(config: Any, length: int = LENGTH) -> Tensor:
    words = min(_first(config, "vocab_size", default=50), 256)
    return torch.randint(min(6, words - 1), words, (2, length))


def _patches(config: Any) -> Tensor:
    """Those of images of 4 x 4 and 2 x 4 patches, one after the other."""
    patch = _first(config, "patch_size", default=14)
    channels = _first(config, "in_channels", "in_chans", "num_channels", default=3)
    times = _first(config, "temporal_patch_size", default=1)
    return torch.randn(24, channels * times * patch * patch)


def candidates(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Arguments to try, the likeliest first."""
    config = model.config
    names = inspect.signature(model.forward).parameters
    size = _first(config, "image_size", default=64)
    channels = _first(config, "num_channels", "in_channels", default=3)
    mels = _first(
        config,
        "num_mel_bins",
        "feature_size",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "input_dim",
        default=80,
    )
    frames = 2 * _first(config, "max_source_positions", default=64)
    video_frames = _first(config, "num_frames", default=8)
    images = {
        "pixel_values": torch.randn(2, channels, size, size),
        "pixel_values_videos": torch.randn(2, video_frames, channels, size, size),
        "input_values": torch.randn(2, 6000),
        "input_features": torch.randn(2, mels, min(frames, 3000)),
        "past_values": torch.randn(2, _first(config, "context_length", default=32), 1),
    }
    if config.model_type in ARGUMENTS:
        yield ARGUMENTS[config.model_type]()
    if "grid_thw" in names:
        yield {
            next(iter(names)): _patches(config),
            "grid_thw": torch.tensor([[1, 4, 4], [1, 2, 4]]),
        }
    text: dict[str, Any] = {"input_ids": _tokens(config)}
    if "bbox" in names:
        text["bbox"] = torch.randint(0, 99, (2, LENGTH, 4)).sort(-1).values
    if "decoder_input_ids" in names:
        text["decoder_input_ids"] = _tokens(config, 8)
    main = getattr(model, "main_input_name", "input_ids")
    if main in images and main in names:
        alone = {main: images[main]}
        yield alone
        for mask in ("input_features_mask", "feature_attention_mask", "attention_mask"):
            if mask in names:
                yield {**alone, mask: torch.ones(2, images[main].shape[-1], dtype=torch.long)}
        if "input_ids" in names:
            yield {**alone, **text}
        if "decoder_input_ids" in names:
            yield {**alone, "decoder_input_ids": _tokens(config, 8)}
        if main == "input_features":
            yield {main: torch.randn(2, LENGTH * 4, mels)}
            yield {main: torch.randn(2, LENGTH * 4, mels), "decoder_input_ids": _tokens(config, 8)}
        if main == "input_values":
            yield {main: torch.randn(2, 1024, 128)}
            yield {main: torch.randn(2, 1, 6000)}
        if main == "pixel_values":
            for other in (32, 96, 128, 224, 256):
                yield {main: torch.randn(2, channels, other, other)}
            yield {main: torch.randn(2, video_frames, channels, size, size)}
            sizes = vars(config).get("image_size")
            if isinstance(sizes, (list, tuple)) and len(sizes) == 2:
                yield {main: torch.randn(2, channels, *sizes)}
            yield {main: torch.randn(1, 2, channels, 64, 64)}
    if "input_ids" in names:
        yield text
        for name, value in images.items():
            if name in names:
                yield {**text, name: value}
    if "query_embeds" in names:
        hidden, inner = (
            _first(config, n, default=64) for n in ("hidden_size", "encoder_hidden_size")
        )
        encoded = {"encoder_hidden_states": torch.randn(2, LENGTH, inner)}
        yield {"query_embeds": torch.randn(2, 4, hidden), **encoded}
    if "inputs" in names:
        yield {"inputs": _tokens(config)}
    if "inputs_embeds" in names:
        width = _first(config, "hidden_size", "d_model", default=64)
        yield {"inputs_embeds": torch.randn(2, LENGTH, width)}


def arguments(model: nn.Module) -> dict[str, Any]:
    """The first arguments that a model takes.

    Raises:
        Exception: What the model says of the likeliest ones, if it takes none.
    """
    first: Exception | None = None
    for found in candidates(model):
        try:
            with torch.no_grad():
                model(**found)
        except Exception as e:
            first = first or e
        else:
            return found
    raise first or ValueError("nothing known of what it takes")
