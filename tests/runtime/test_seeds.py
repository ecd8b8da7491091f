"""Seeds come from torch's generators and advance them."""

from __future__ import annotations

import pytest
import torch

from torch_max_backend.runtime.seeds import draw


def test_cpu_seeds_follow_torchs_generator() -> None:
    torch.manual_seed(5)
    first = [draw("cpu").item() for _ in range(50)]
    torch.manual_seed(5)
    assert [draw("cpu").item() for _ in range(50)] == first
    assert len(set(first)) == 50
    assert min(first) < 0 < max(first)
    state = torch.get_rng_state()
    again = draw("cpu")
    torch.set_rng_state(state)
    assert torch.equal(draw("cpu"), again)


def test_the_default_device_does_not_matter() -> None:
    with torch.device("meta"):
        seed = draw("cpu")
    assert seed.device.type == "cpu"
    assert (seed.dtype, seed.shape) == (torch.int64, ())


class _Generator:
    """The part of torch's CUDA generator that is used."""

    def __init__(self, seed: int) -> None:
        self._seed, self._offset = seed, 0

    def initial_seed(self) -> int:
        return self._seed

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        assert offset % 4 == 0
        self._offset = offset


def test_gpu_seeds_follow_the_devices_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = [_Generator(s) for s in (0, 1, 2**64 - 1, 1)]
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(generators))
    drawn = [[draw(f"cuda:{i}").item() for _ in range(50)] for i in range(4)]
    assert drawn[1] == drawn[3]
    assert len({s for seeds in drawn[:3] for s in seeds}) == 150
    assert generators[0].get_offset() == 200
