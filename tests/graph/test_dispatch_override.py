"""Resizing reaches conversion as one operator, and other compilers see torch's own kernels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._ops import OpOverload

from tests.tracing import traced_all

aten = torch.ops.aten
MODES = {
    "nearest": aten.upsample_nearest2d,
    "nearest-exact": aten._upsample_nearest_exact2d,
    "bilinear": aten.upsample_bilinear2d,
    "bicubic": aten.upsample_bicubic2d,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_interpolation_is_one_operator(mode: str, dynamic: bool) -> None:
    graphs = traced_all(
        lambda x: F.interpolate(x, scale_factor=2, mode=mode), torch.randn(2, 3, 6, 7),
        dynamic=dynamic,
    )  # fmt: skip
    targets = {n.target for n in graphs[0].graph.nodes if n.op == "call_function"}
    assert MODES[mode].default in targets
    assert aten._unsafe_index.Tensor not in targets


# Shapes, and the gradients that torch derives.
GRADIENTS = {
    "nearest": (aten.upsample_nearest1d_backward, [2, 3, 6]),
    "nearest-exact": (aten._upsample_nearest_exact3d_backward, [2, 3, 6, 7, 4]),
    "linear": (aten.upsample_linear1d_backward, [2, 3, 6]),
    "bilinear": (aten.upsample_bilinear2d_backward, [2, 3, 6, 7]),
    "bicubic": (aten.upsample_bicubic2d_backward, [2, 3, 6, 7]),
    "trilinear": (aten.upsample_trilinear3d_backward, [2, 3, 6, 7, 4]),
}


@pytest.mark.parametrize("mode", GRADIENTS)
def test_gradients_are_traced_with_symbolic_sizes(mode: str) -> None:
    op, shape = GRADIENTS[mode]
    x = torch.randn(shape, requires_grad=True)
    graphs = traced_all(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x, dynamic=True)
    found = [n for g in graphs for n in g.graph.nodes if n.target == op.default]
    assert len(found) == 1
    sizes = found[0].meta["val"].shape
    assert len(sizes) == len(shape)
    assert all(isinstance(s, torch.SymInt) for s in sizes[2:])


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_batch_is_traced(mode: str) -> None:
    graphs = traced_all(lambda x: F.interpolate(x, size=(4, 5), mode=mode), torch.randn(0, 3, 6, 7))
    assert list(graphs[0].graph.output_node().args[0][0].meta["val"].shape) == [0, 3, 4, 5]


@pytest.mark.parametrize("op", [aten.upsample_bilinear2d.vec, aten.lstm.input, aten.gru.input])
def test_kernels_of_torch_are_back_afterwards(op: OpOverload) -> None:
    from torch_max_backend.graph.dispatch_override import whole

    before = dict(op.py_kernels)
    with whole(), whole():
        assert op.py_kernels != before
    assert op.py_kernels == before
