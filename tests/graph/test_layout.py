"""Strides of outputs: what the model returns and how views restore them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.xdist_group("compile-0")


def layout(tensor: Tensor) -> Any:
    from torch_max_backend.graph.layout import output_layout
    from torch_max_backend.graph.shapes import Symbols

    return output_layout(tensor, Symbols())


def restored(tensor: Tensor) -> Tensor:
    """The tensor by way of what the model would return and the runtime make of it."""
    from torch_max_backend.runtime.results import Rebuild

    found = layout(tensor)
    made = tensor
    for dim in found.narrowed:
        made = made.narrow(dim, 0, 1)
    if found.order is not None:
        made = made.permute(found.order)
    rebuild = Rebuild.of(found, [])
    made = made.contiguous()
    return made if rebuild is None else rebuild(made, ())


def make(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


@pytest.mark.parametrize(
    "tensor",
    [
        make(),
        make(7),
        make(2, 3, 4),
        make(1, 3, 1),
        make(3, 1).t(),
        make(2, 3).as_strided((1, 3), (77, 1)),
        make(1).as_strided((1, 1), (0, 0)),
    ],
    ids=lambda t: f"{tuple(t.shape)}{t.stride()}",
)
def test_contiguous_outputs_are_taken_as_they_are(tensor: Tensor) -> None:
    assert layout(tensor).is_contiguous


STRIDED = {
    "transposed": make(3, 4).t(),
    "permuted": make(2, 3, 4).permute(2, 0, 1),
    "channels last": make(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels last, one channel": make(2, 1, 4, 5).to(memory_format=torch.channels_last),
    "channels last 3d": make(2, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d),
    "size 1 among permuted": make(2, 1, 3).permute(2, 1, 0),
    "expanded": make(1, 3).expand(4, 3),
    "expanded twice": make(2, 1, 3, 1).expand(2, 5, 3, 6),
    "expanded and permuted": make(2, 3, 1).expand(2, 3, 4).permute(2, 1, 0),
    "expanded scalar": make(1).expand(5),
    "gaps": make(4, 6)[::2, ::3],
    "overlapping": make(12).as_strided((3, 4), (2, 1)),
    "padded rows": make(3, 8)[:, :5],
    "empty": make(3, 0),
    "empty, transposed": make(0, 3, 2).transpose(0, 2),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_are_restored(name: str) -> None:
    tensor = STRIDED[name]
    result = restored(tensor)
    assert result.stride() == tensor.stride() or name == "channels last, one channel"
    torch.testing.assert_close(result, tensor)


@pytest.mark.parametrize("name", [n for n in STRIDED if "empty" not in n])
def test_only_what_no_view_gives_is_copied(name: str) -> None:
    copied = bool(layout(STRIDED[name]).strides)
    assert copied == (name in ("gaps", "overlapping", "padded rows"))


def test_symbolic_sizes_are_expressions() -> None:
    from tests.tracing import traced
    from torch_max_backend.graph.signature import analyse

    def outputs(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return y.t() + 0, y.sum(0, keepdim=True).expand(x.shape)

    signature = analyse(traced(outputs, make(3, 4), dynamic=True)).signature
    transposed, expanded = signature.layouts
    assert transposed.order == (1, 0)
    assert transposed.sizes == ()
    assert expanded.narrowed == (0,)
    assert all("d" in size for size in expanded.sizes)
