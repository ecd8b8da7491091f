"""Products, convolutions and what is fused with them, by each provider, against eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from tests.graph.passes.test_epilogue_fusion import FUSED
from tests.support.groups import compile_group
from torch_max_backend.gemm_providers import choice as bank

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten

# Rows, columns and depth: one and few rows, odd sizes, more than a panel and a block of each; few
# rows of deep and of wide operands; an operand that no cache holds; one that is taken in strips.
_SIZES = [
    (1, 70, 33), (3, 65, 40), (4, 16, 400), (5, 33, 17), (190, 70, 400), (15, 1100, 20),
    (2, 9, 1100), (31, 19, 2070), (16, 2130, 70), (48, 1, 16), (49, 40, 15), (60, 700, 400),
    (2, 9000, 19),
]  # fmt: skip
_DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8,
    torch.uint8,
]  # fmt: skip


def _numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    low = 0 if dtype == torch.uint8 else -100
    return torch.randint(low, 100, shape, dtype=dtype, generator=generator)


def _products(dtype: torch.dtype) -> Callable[..., list[torch.Tensor]]:
    def products(*tensors: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for i in range(0, len(tensors), 2):
            a, b = tensors[i : i + 2]
            results += [a @ b.t(), a @ b.t().contiguous(), a.t().contiguous().t() @ b.t()]
        a, b = tensors[:2]
        return [*results, torch.stack([a, a]) @ torch.stack([b.t(), b.t() * 2])]

    return products


# Batch, channels in and out, height, width, kernel, stride, padding, dilation, groups.
_CONVOLUTIONS: list[tuple[Any, ...]] = [
    (1, 3, 8, 20, 23, (3, 3), 1, 1, 1, 1),
    (2, 16, 33, 17, 40, (3, 3), 2, 1, 1, 1),
    (1, 8, 8, 14, 14, (1, 1), 1, 0, 1, 1),
    (2, 8, 12, 15, 15, (1, 1), 2, 0, 1, 1),
    (1, 6, 9, 30, 30, (7, 7), 2, 3, 1, 3),
    (2, 5, 10, 33, 70, (7, 7), 1, 3, 1, 5),
    (1, 64, 20, 7, 7, (3, 3), 1, 1, 1, 1),
    (1, 2, 3, 9, 9, (3, 3), 1, 5, 4, 1),
    (1, 4, 4, 9, 70, (1, 5), (1, 3), (0, 7), (1, 2), 2),
    (1, 4, 4, 9, 9, (3, 3), 3, 1, 1, 4),
    (1, 3, 5, 32, 32, (8, 8), 8, 0, 1, 1),
    (1, 2, 2, 30, 31, (21, 21), 1, 10, 1, 1),
    # Taps that meet padding alone, on both sides or on one; positions cropped with them.
    (2, 12, 20, 4, 4, (3, 3), 1, 12, 12, 1),
    (1, 5, 6, 4, 33, (3, 5), (1, 2), (12, 9), (12, 8), 1),
    (2, 4, 4, 3, 5, (5, 3), 1, (10, 6), (5, 4), 4),
    (1, 4, 6, 5, 6, (4, 4), (3, 2), (13, 12), (8, 9), 2),
    (1, 3, 5, 4, 4, (2, 2), 1, (5, 6), 8, 1),
    # Single channels: vectors of one row and of several, whole images smaller than a vector.
    (2, 8, 16, 14, 14, (5, 5), 1, 2, 1, 8),
    (1, 6, 6, 7, 7, (3, 3), 2, 1, 1, 6),
    (1, 3, 3, 33, 40, (5, 5), 2, 2, 1, 3),
    (2, 4, 8, 20, 41, (7, 7), 1, 3, 1, 4),
    (1, 40, 16, 9, 9, (1, 1), 1, 0, 1, 1),
    # A plane for each tap: gaps between rows are wide.
    (1, 70, 40, 12, 33, (3, 3), 1, 12, 12, 1),
    (3, 6, 36, 9, 9, (3, 4), (2, 3), (4, 6), (3, 5), 2),
]


def _convolutions(chosen: list[tuple[Any, ...]]) -> Callable[..., list[torch.Tensor]]:
    def convolutions(*tensors: torch.Tensor) -> list[torch.Tensor]:
        bias = tensors[-1]
        results = []
        for i, (*_, out, _h, _w, _k, stride, padding, dilation, groups) in enumerate(chosen):
            x, weight = tensors[2 * i : 2 * i + 2]
            settings = (stride, padding, dilation, groups)
            results.append(F.conv2d(x, weight, None if i % 2 else bias[:out], *settings))
        return results

    return convolutions


def _images(dtype: torch.dtype, chosen: list[tuple[Any, ...]]) -> list[torch.Tensor]:
    tensors = []
    for batch, inputs, outputs, height, width, kernel, _s, _p, _d, groups in chosen:
        tensors.append(_numbers(dtype, batch, inputs, height, width))
        tensors.append(_numbers(dtype, outputs, inputs // groups, *kernel))
    return [*tensors, _numbers(dtype, 64)]


def _attention(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Its gradients: query heads that share a key head, tiles that are not full, few queries."""
    results = []
    for i in range(0, len(tensors), 4):
        q, k, v, grad = tensors[i : i + 4]
        out, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, i > 0)
        given = (grad, q, k, v, out, sums, 0.0, i > 0)
        results += aten._scaled_dot_product_flash_attention_for_cpu_backward(*given)
    return results


def _heads(dtype: torch.dtype) -> list[torch.Tensor]:
    sizes = [(2, 4, 3, 16), (2, 2, 70, 16), (1, 3, 270, 20), (1, 1, 290, 20)]
    queries, keys = sizes[::2], sizes[1::2]
    return [
        _numbers(dtype, *size) for q, k in zip(queries, keys, strict=True) for size in (q, k, k, q)
    ]


def _cases(name: str) -> dict[str, tuple[Callable[..., object], list[torch.Tensor]]]:
    dtypes = _DTYPES if name == "mojo" else _DTYPES[:2]
    cases: dict[str, tuple[Callable[..., object], list[torch.Tensor]]] = {}
    # Each product and convolution is a kernel of its own: all of them for one dtype.
    for dtype in dtypes:
        sizes = _SIZES if dtype == torch.float32 else _SIZES[3:5]
        pairs = [t for m, n, k in sizes for t in (_numbers(dtype, m, k), _numbers(dtype, n, k))]
        cases[f"products {dtype}"] = (_products(dtype), pairs)
    for dtype in _DTYPES[:2]:
        # The kernels of ours that surround MKL's products are the same for each.
        every = _CONVOLUTIONS if name == "mojo" else _CONVOLUTIONS[::2]
        chosen = every if dtype == torch.float32 else _CONVOLUTIONS[1:4]
        cases[f"convolutions {dtype}"] = (_convolutions(chosen), _images(dtype, chosen))
        cases[f"attention {dtype}"] = (_attention, _heads(dtype))
    cases |= {f"fused {n}": (function, [x]) for n, (function, x) in FUSED.items()}
    return cases


# What MAX's graphs ask of the provider that is not this machine's: `test_by_max.py` runs these.
_BY_MAX = ("fused linear, relu",)


@contextmanager
def _on_machine_of(provider: str) -> Iterator[None]:
    """In the body, the provider is the one of its name, whoever made this processor."""
    with mock.patch.object(bank, "made_by_intel", return_value=provider == "mkl"):
        bank.provider.cache_clear()
        yield
    bank.provider.cache_clear()


def by_other_provider() -> list[Program]:
    """Programs of the provider that is not this machine's, traced; none if there is none."""
    from tests.conformance.program import Program, trace_program

    other = "mojo" if bank.made_by_intel() else "mkl"
    if bank.provider(other) is None:
        return []
    cases = _cases(other)
    programs = [Program(f"{other} {n}", *cases[n]) for n in _BY_MAX]
    with _on_machine_of(other):
        for program in programs:
            program.trace = trace_program(program)
            assert program.trace.signature.bank.startswith(other)
    return programs


@cache
def _programs(name: str) -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    programs = {}
    for i, (n, (function, tensors)) in enumerate(_cases(name).items()):
        if n.startswith("fused"):
            # In turn, and with the other provider the other way.
            dynamic = (i + (name == "mkl")) % 2 == 1
            programs[n] = Program(n, function, tensors, dynamic)
            continue
        programs[n] = Program(n, function, tensors)
        if "float64" in n:
            programs[f"{n} dynamic"] = Program(n, function, tensors, dynamic=True)
    with _on_machine_of(name):
        compile_together(list(programs.values()))
    return programs


def _close(ours: torch.Tensor, program: Program, index: int) -> None:
    """As close to the exact result as torch's own, and a little."""
    theirs = program.eager()[index]
    assert ours.dtype == theirs.dtype
    if not ours.dtype.is_floating_point:
        assert torch.equal(ours, theirs)
        return
    exact = program.flat(*[t.double() for t in program.tensors])[index]
    size = exact.abs().max()
    rounding = torch.finfo(ours.dtype).eps
    # In float64 the exact result is torch's own, which is as far off.
    few = 16 if ours.dtype == torch.float64 else 8
    allowed = 1.5 * (theirs.double() - exact).abs().max() + few * rounding * size
    assert (ours.double() - exact).abs().max() <= allowed


@compile_group("bank", weight=4)
@pytest.mark.parametrize("name", ["mojo", "mkl"])
@pytest.mark.parametrize("kind", ["products", "convolutions", "attention", "fused"])
def test_values_are_torchs(name: str, kind: str) -> None:
    if bank.provider(name) is None:
        pytest.skip(f"this machine has no {name}")
    chosen = {n: p for n, p in _programs(name).items() if n.startswith(kind)}
    assert chosen
    for label, program in chosen.items():
        for index, ours in enumerate(program.run()):
            if kind == "fused":
                torch.testing.assert_close(ours, program.eager()[index], msg=label)
            else:
                _close(ours, program, index)


@compile_group("bank", weight=4)
@pytest.mark.parametrize("name", ["mojo", "mkl"])
def test_addresses_come_from_the_provider(name: str) -> None:
    if bank.provider(name) is None:
        pytest.skip(f"this machine has no {name}")
    program = _programs(name)["products torch.float32"]
    assert program.trace is not None
    sources = [i.source for i in program.trace.signature.inputs if i.kind == "address"]
    assert sources == (["mkl.float32", "mkl.set_threads"] if name == "mkl" else [])
    assert program.trace.signature.bank.startswith(name)
