"""The weights file: tensors come back as they were; memory that they share is there once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torch_max_backend import PackageError
from torch_max_backend.ahead_of_time.weights import header_digest, opened, save, stored

BASE = torch.arange(24.0)
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(3, 4),
    "0-d": lambda: torch.tensor(7),
    "empty": lambda: torch.empty(0, 3),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "a column": lambda: torch.randn(4, 6)[:, 2],
    "a slice": lambda: torch.randn(10)[3:7],
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "requires grad": lambda: torch.randn(3, requires_grad=True),
    **{
        str(dtype): lambda dtype=dtype: torch.arange(5).to(dtype)
        for dtype in (
            torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16,
            torch.bfloat16, torch.float64, torch.uint16, torch.uint64, torch.complex64,
            torch.complex128, torch.float8_e4m3fn,
        )
    },
}  # fmt: skip


def _back(path: Path, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    members, views = stored(list(tensors.items()))
    save(members, path / "w")
    return dict(zip(tensors, opened(path / "w", views), strict=True))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().contiguous().flatten().view(torch.uint8)


def test_all_come_back(tmp_path: Path) -> None:
    tensors = {name: make() for name, make in TENSORS.items()}
    for name, found in _back(tmp_path, tensors).items():
        tensor = tensors[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(_bytes(found), _bytes(tensor)), name
        assert not found.requires_grad
        # Those whose memory is theirs alone keep its order, so that no call has to copy them.
        if name != "a column":
            assert found.stride() == tensor.stride(), name


def test_shared_memory_is_kept_once_and_stays_shared(tmp_path: Path) -> None:
    base = torch.arange(1000.0)
    tensors = {
        "first": base[10:510],
        "same": base[10:510],
        "grid": base[10:510].view(20, 25).t(),
        "later": base[400:600],
        "bytes": base[20:30].view(torch.uint8),
    }
    found = _back(tmp_path, tensors)
    assert (tmp_path / "w").stat().st_size < 600 * 4 + 1000
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor), name
    found["first"][15] = -1
    assert found["grid"][15, 0] == found["same"][15] == -1
    assert torch.equal(found["bytes"].view(torch.float32)[5], torch.tensor(-1.0))
    found["later"][0] = -2
    assert found["first"][390] == -2


def test_what_is_written_stays_in_the_process(tmp_path: Path) -> None:
    found = _back(tmp_path, {"a": torch.ones(5)})
    before = (tmp_path / "w").read_bytes()
    found["a"].zero_()
    assert (tmp_path / "w").read_bytes() == before


def test_what_is_no_weights_file(tmp_path: Path) -> None:
    _, views = stored([("a", torch.ones(5))])
    for content in (b"", b"\xff" * 100, b"\0" * 100):
        (tmp_path / "w").write_bytes(content)
        with pytest.raises(PackageError, match="damaged"):
            opened(tmp_path / "w", views)
    (tmp_path / "w").write_bytes(b"\xff" * 100)
    with pytest.raises(PackageError, match="no header"):
        header_digest(tmp_path / "w")
