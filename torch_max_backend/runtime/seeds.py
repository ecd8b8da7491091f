"""Seeds for compiled graphs, drawn from torch's own generators."""

from __future__ import annotations

import torch

_LEAST = -(1 << 63)
# 2^64 over the golden ratio: the sums below meet again only after as many draws.
_STEP = 0x9E3779B97F4A7C15
# Offsets of torch's CUDA generators are multiples of this.
_OFFSET = 4


def draw(device: str) -> torch.Tensor:
    """A seed as a 0-d int64 tensor on CPU; advances the default generator of a device."""
    if device == "cpu":
        # All 64 bits; `device` because a default device may be set.
        return torch.empty((), dtype=torch.int64, device="cpu").random_(_LEAST, None)
    # The state of a CUDA generator is on the host, so nothing waits for the device.
    generator = torch.cuda.default_generators[int(device.partition(":")[2])]
    offset = generator.get_offset()
    generator.set_offset(offset + _OFFSET)
    number = (generator.initial_seed() + offset // _OFFSET * _STEP) % (1 << 64)
    return torch.tensor(number + _LEAST, dtype=torch.int64, device="cpu")
