"""Images that tests of resizing, sampling and pooling share."""

from __future__ import annotations

import torch

NAN, INF = float("nan"), float("inf")
# Batch, channels and one to three spatial sizes.
ROWS, IMAGES, VOLUMES = (3, 2, 11), (2, 3, 7, 9), (2, 2, 4, 5, 6)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The same normal numbers for the same shape; as bytes about 128 in uint8."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return (x * 70 + 128).clamp(0, 255).to(dtype) if dtype == torch.uint8 else x.to(dtype)


def spoiled(*shape: int) -> torch.Tensor:
    """Such numbers with NaN and infinities among them."""
    x = random(*shape)
    flat = x.view(-1)
    flat[3::17], flat[5::19], flat[8::23] = NAN, INF, -INF
    return x
