"""Stepped slices, what is written to them, and their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.beside_eager import OPTIONS, assert_as_eager
from torch_max_backend import max_backend

SLICES = (
    slice(None, None, 2), slice(1, None, 2), slice(3, 50, 3), slice(0, 64, 7), slice(5, 6, 2),
    slice(63, 64, 5), slice(-9, None, 2), slice(70, 80, 2),
)  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_values_and_gradients_are_eagers(dim: int) -> None:
    x = torch.randn(64, 65, 66, generator=torch.Generator().manual_seed(0))
    picks = [(slice(None),) * dim + (chosen,) for chosen in SLICES]

    def read(x: Tensor) -> Tensor:
        return torch.cat([x[pick].reshape(-1) for pick in picks])

    def written(x: Tensor) -> Tensor:
        y = x * 1
        for k, pick in enumerate(picks):
            y[pick] = x[pick] * k
        return y

    assert_as_eager(read, x)
    assert_as_eager(written, x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    x = (torch.arange(9 * 151).reshape(9, 151) % 7 - 3).to(dtype)
    y = x[:, :75].flip(0).contiguous()
    assert_as_eager(lambda x, y: torch.slice_scatter(x, y, 1, 1, None, 2), x, y)


def test_lengths_vary() -> None:

    torch._dynamo.reset()

    def function(x: Tensor) -> Tensor:
        return (x[1::2] * x[: x[1::2].shape[0]]).sum()

    compiled = torch.compile(function, backend=max_backend, dynamic=True, options=OPTIONS)
    for n in (9, 40, 101):
        x = torch.arange(float(n)).requires_grad_()
        found, expected = (torch.autograd.grad(f(x), x) for f in (compiled, function))
        torch.testing.assert_close(found, expected)
