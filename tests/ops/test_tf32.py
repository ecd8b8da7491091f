"""Products of float32 on units that round operands to TF32. The kernel runs on CPU here."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from tests.support.groups import compile_group

Kinds = dict[tuple[bool, bool], Callable[[torch.Tensor], torch.Tensor]]


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """What a unit for TF32 makes of float32: the low 13 bits are lost."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.fixture(scope="module")
def parts() -> Kinds:
    """The kernel as a function of a matrix ``[6, 8]``, by right and inner."""
    from max.dtype import DType
    from max.graph import DeviceRef, Graph, Module, TensorType

    from tests.support.module_cache import models_of
    from torch_max_backend.engines.max.buffers import to_buffer, to_tensor
    from torch_max_backend.ops.common import tf32
    from torch_max_backend.registry.kernel_sources import BASE, kernel_library_path

    libraries = [kernel_library_path(name) for name in (BASE, "gemm.tf32")]
    kinds = [(right, inner) for right in (False, True) for inner in (False, True)]
    module = Module()
    matrix = TensorType(DType.float32, [6, 8], DeviceRef.CPU())
    with Graph("g0", input_types=[matrix], module=module, custom_extensions=libraries) as graph:
        x = graph.inputs[0].tensor
        graph.output(*(tf32._parts(x, right=right, inner=inner) for right, inner in kinds))
    (model,) = models_of(module, libraries, "the parts of operands")

    def of(kind: tuple[bool, bool]) -> Callable[[torch.Tensor], torch.Tensor]:
        place = kinds.index(kind)
        return lambda x: to_tensor(model._execute_device_tensors([to_buffer(x)])[place])

    return {kind: of(kind) for kind in kinds}


def _matrix(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(6, 8) * torch.logspace(-20, 20, 48).reshape(6, 8)


@compile_group("tf32", weight=12)
@pytest.mark.parametrize("inner", [False, True], ids=["outer", "inner"])
def test_the_unit_loses_nothing_of_the_parts(parts: Kinds, inner: bool) -> None:
    x = _matrix(0)
    for right in (False, True):
        made = parts[right, inner](x)
        assert torch.equal(_rounded(made), made)
        first, second, third = made.chunk(3, 1 if inner else 0)
        kept, rest = (first, second) if right else (first, third)
        torch.testing.assert_close(kept + rest, x, rtol=2**-22, atol=0)
        assert torch.equal(kept, third if right else second)


@compile_group("tf32", weight=12)
def test_a_product_is_of_float32(parts: Kinds) -> None:
    torch.manual_seed(1)
    a, b = torch.randn(6, 8), torch.randn(6, 8)
    exact = a.double() @ b.double().t()
    size = a.double().abs() @ b.double().abs().t()
    made = _rounded(parts[False, True](a)).double() @ _rounded(parts[True, True](b)).double().t()
    assert ((made - exact).abs() <= size * 2**-21).all()
    plain = _rounded(a).double() @ _rounded(b).double().t()
    assert ((plain - exact).abs() > size * 2**-14).any()


@compile_group("tf32", weight=12)
def test_numbers_that_are_not_finite(parts: Kinds) -> None:
    largest = torch.finfo(torch.float32).max
    a, b = torch.ones(6, 8), torch.full((6, 8), 2.0)
    a[:5, 0] = torch.tensor([math.inf, -math.inf, math.nan, largest, -largest])
    b[:, 0] = 0.5 + 2.0**-15
    made = parts[False, True](a) @ parts[True, True](b).t()
    torch.testing.assert_close(made, a @ b.t(), equal_nan=True, rtol=2**-21, atol=0)
