"""Complex numbers through ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group
from torch_max_backend import max_backend

pytestmark = compile_group("complex end to end", 8)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _compiled(function: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
    return torch.compile(function, backend=max_backend, fullgraph=True, dynamic=dynamic)


def rotary(query: Tensor, key: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary position embedding by complex multiplication: ``[batch, sequence, heads, dim]``."""

    def turned(x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * frequencies[None, :, None, :]).flatten(3).type_as(x)

    return turned(query), turned(key)


def _angles(length: int, dim: int) -> Tensor:
    inverse = 1.0 / 10000 ** (torch.arange(0, dim, 2) / dim)
    angles = torch.outer(torch.arange(length), inverse)
    return torch.polar(torch.ones_like(angles), angles)


@pytest.mark.parametrize("dynamic", [False, True])
def test_rotary_embedding(dynamic: bool) -> None:
    compiled = _compiled(rotary, dynamic)
    for batch, length in [(2, 5), (3, 7)] if dynamic else [(2, 5)]:
        query, key = torch.randn(batch, length, 4, 16), torch.randn(batch, length, 2, 16)
        given = query, key, _angles(length, 16)
        torch.testing.assert_close(compiled(*given), rotary(*given))


def test_complex_arguments_results_and_writes() -> None:
    def function(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y.add_(z)
        return z, (z @ z.mH).T, torch.linalg.vector_norm(z), torch.fft.fft(y.conj(), dim=0)

    torch.manual_seed(0)
    compiled = _compiled(function)
    base = torch.randn(4, 4, dtype=torch.complex64)
    for z in (base, base.T, base.conj()):
        y = torch.randn(4, 4, dtype=torch.complex64)
        ours, theirs = y.clone(), y.clone()
        found, expected = compiled(z, ours), function(z, theirs)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(ours, theirs)
        assert found[0] is z
        assert [f.stride() for f in found] == [e.stride() for e in expected]


def test_arguments_are_kept_for_backward_and_no_conjugates_of_them() -> None:
    def product(x: Tensor, y: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y))

    given = [torch.randn(3, 5, 2, requires_grad=True) for _ in range(2)]
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage().data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ours = _compiled(product)(*given)
    assert {*kept} == {t.untyped_storage().data_ptr() for t in given}
    gradients = torch.autograd.grad(ours.square().sum(), given)
    expected = torch.autograd.grad(product(*given).square().sum(), given)
    torch.testing.assert_close(gradients, expected)
