"""What MAX computes wrongly when it fuses it, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

_X = torch.randn(4, 25, generator=torch.Generator().manual_seed(0))
_W = torch.randn(25, 25, generator=torch.Generator().manual_seed(1)) / 5
_ROWS = torch.tensor([3, 0, 2, 1])

KERNELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "matmul": lambda x: x @ _W,
    "bmm": lambda x: (x.view(2, 2, 25) @ torch.stack([_W, _W])).view(4, 25),
    "layer_norm": lambda x: F.layer_norm(x, (25,)),
    "embedding": lambda x: F.embedding(_ROWS, x),
    "index_then_scaled": lambda x: x[_ROWS].mul(2).add(1),
    "sum": lambda x: torch.stack([x, x + 1, x * 2]).sum(0),
    "softmax": lambda x: x.softmax(-1),
}
VIEWS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "middle": lambda y, w: y.view(4, 5, 5) * w[:5, None],
    "last": lambda y, w: y.view(4, 5, 5) + w[:5],
    "both": lambda y, w: y.reshape(20, 5).view(4, 5, 1, 5) * w[:5, None, None],
    "unsqueeze": lambda y, w: y.unsqueeze(-1) * w[:, None],
    "transpose": lambda y, w: y.unsqueeze(1).transpose(1, 2) - w[:, None],
    "where": lambda y, w: torch.where(w[:5, None] > 0, y.view(4, 5, 5), 0),
}
CASES = {
    f"{kernel}-{view}": (lambda x, w, k=KERNELS[kernel], v=VIEWS[view]: v(k(x), w), [_X, _W[0]])
    for i, kernel in enumerate(KERNELS)
    # From another view on each: one that is static behind one kernel is dynamic behind the next.
    for view in [*list(VIEWS)[i:], *list(VIEWS)[:i]]
} | {
    "outer_sum": (lambda x, w: x.view(4, 5, 5) + (w[:5, None] + w[5:10]), [_X, _W[0]]),
    "outer_where": (
        lambda x, w: torch.where(w[: x.shape[0], None] > w, x.unsqueeze(0) * 2, 0.0),
        [_X, _W[0]],
    ),
    "causal": (
        lambda x, w: x.expand(3, *x.shape) + torch.ones(x.shape, dtype=torch.bool).tril().float(),
        [_X, _W[0]],
    ),
    "tril": (lambda x, w: (x.expand(3, *x.shape).exp().tril(1), x.triu()), [_X, _W[0]]),
    "outer_expanded": (
        lambda x, w: (w[: x.shape[0], None] * w).expand(3, *x.shape).softmax(1),
        [_X, _W[0]],
    ),
    "group_norm": (lambda x, w: F.group_norm(x.view(4, 5, 5), 1, w[:5], w[5:10]), [_X, _W[0]]),
    # One channel: its move is a view, and MAX picks the layout of what is convolved.
    "conv2d": (
        lambda x, w: F.conv2d(x.view(4, 1, 5, 5), w[:9].view(1, 1, 3, 3)) * w[:3, None],
        [_X, _W[0]],
    ),
    "conv3d": (
        lambda x, w: F.conv3d(x.view(4, 1, 5, 5, 1), w[:9].view(1, 1, 3, 3, 1)) * w[:3, None, None],
        [_X, _W[0]],
    ),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("vectors", weight=5)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    _programs()[name].assert_agrees()


def _sequences(build: Callable[..., Any], *shape: Any) -> int:
    from max.dtype import DType
    from max.graph import DeviceRef, TensorType, ops

    from torch_max_backend.convert.fusion_barriers import GuardedGraph

    given = TensorType(DType.float32, shape, DeviceRef.CPU())
    with GuardedGraph("g", input_types=[given]) as graph:
        graph.output(build(ops, graph.inputs[0].tensor))
    return str(graph).count("mo.sequence")


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize(
    ("build", "shape", "expected"),
    [
        pytest.param(
            lambda ops, x: ops.reshape(ops.softmax(x), ["n", 5, 5]), ("n", 25), 1, id="split"
        ),
        pytest.param(
            lambda ops, x: ops.reshape(ops.exp(ops.softmax(x)), ["n", 5, 5]),
            ("n", 25),
            1,
            id="behind",
        ),
        pytest.param(
            lambda ops, x: ops.unsqueeze(ops.cumsum(x, 0), -1), ("n", 25), 1, id="unsqueeze"
        ),
        pytest.param(
            lambda ops, x: ops.permute(ops.softmax(x), [0, 2, 1]), ("n", 1, 25), 1, id="moves ones"
        ),
        pytest.param(
            lambda ops, x: ops.permute(ops.softmax(x), [1, 0]), ("n", 25), 0, id="transpose"
        ),
        pytest.param(
            lambda ops, x: ops.reshape(ops.exp(x), ["n", 5, 5]), ("n", 25), 0, id="no kernel"
        ),
        pytest.param(
            lambda ops, x: ops.reshape(ops.softmax(x), ["n", 4, 32]),
            ("n", 128),
            0,
            id="whole vectors",
        ),
        pytest.param(
            lambda ops, x: ops.reshape(ops.softmax(x), ["n", "m", 5]),
            ("n", "m", 5),
            0,
            id="same rows",
        ),
        pytest.param(
            lambda ops, x: ops.reshape(ops.softmax(x), [x.shape[0] * 25]),
            ("n", 25),
            0,
            id="longer rows",
        ),
    ],
)
def test_only_views_that_need_it_are_kept_apart(
    build: Callable[..., Any], shape: tuple[Any, ...], expected: int
) -> None:
    assert _sequences(build, *shape) == expected


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize(
    ("dtype", "old", "new", "whole"),
    [
        ("float32", 32, 16, True),
        ("float32", 24, 8, False),
        ("bfloat16", 32, 16, False),
        ("bfloat16", 96, 32, True),
        ("float64", 16, 8, True),
        ("float32", 0, 5, True),
    ],
)
def test_rows_are_whole_if_vectors_divide_them(dtype: str, old: int, new: int, whole: bool) -> None:
    from max.dtype import DType
    from max.graph import DeviceRef, Dim, Graph, TensorType

    from torch_max_backend.convert.fusion_barriers import rows_stay_whole

    with Graph("g", input_types=[TensorType(DType[dtype], (old,), DeviceRef.CPU())]) as graph:
        value = graph.inputs[0].tensor
        assert rows_stay_whole(value, [Dim(7), Dim(new)]) is whole
        graph.output(value)


def test_nothing_is_left_for_max_to_fold() -> None:
    """MAX would compile a second module to compute it."""
    from max.dtype import DType
    from max.graph import DeviceRef, Module, TensorType, ops

    from torch_max_backend.convert.fusion_barriers import GuardedGraph
    from torch_max_backend.engines.max.module import kernel_library

    cpu = DeviceRef.CPU()
    kind = TensorType(DType.int64, [3], cpu)
    graph = GuardedGraph("g", input_types=[kind], module=Module(), kernel_library=kernel_library())
    with graph:
        (given,) = (v.tensor for v in graph.inputs)
        three = ops.constant([1, 2, 3], DType.int64, cpu)
        spread = ops.broadcast_to(ops.reshape(three, [3, 1]), [3, 3])
        graph.output(ops.concat([given, three]), given * three, spread)
        before = str(graph._mlir_op).count("mo.sequence")
        ops.concat([three, three])
        ops.gather(three, ops.reshape(three, [3]), 0)
        ops.cast(three, DType.float32) + 1
        after = str(graph._mlir_op).count("mo.sequence")
        views = str(graph._mlir_op).count("rmo.reshape")
        uniform = ops.broadcast_to(ops.constant(2.5, DType.float32, cpu), [4, 3])
        assert list(ops.reshape(uniform, [2, 6]).shape) == [2, 6]
    assert (before, after) == (0, 3)
    assert str(graph._mlir_op).count("rmo.reshape") == views
