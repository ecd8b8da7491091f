"""Slices, indexing and scatters beyond op_db's samples: bounds, symbolic sizes, masks, NaN,
gradients, and indices out of range, which must raise and never touch foreign memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
NAN = float("nan")
END = 2**63 - 1

X = torch.arange(24.0).reshape(4, 6)
DEEP = torch.arange(120.0).reshape(2, 3, 4, 5)
I3 = torch.tensor([2, 0, 2])


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    dynamic: bool = False


def _sizes(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x[: y.shape[0]], x[y.shape[0] :], x[-y.shape[0] :], x[: -y.shape[0]], x[y.shape[0] - 1]


def _padded(x: torch.Tensor) -> Any:
    missing = 10 - x.shape[1]
    pad = torch.nn.functional.pad
    return pad(x, (0, missing), value=3.0), pad(x, (missing, 1)), pad(x, (0, 0, missing, -missing))


def _bounds(x: torch.Tensor) -> Any:
    return x[1:100], x[-2:], x[-100:2], x[:, 1::3], x[:, -4:-1], x[2:2], x[:, 0:END:2], x[-1]


def _copies(x: torch.Tensor) -> Any:
    """Copies out of memory that is not read in its order, whole tiles and rests of them."""
    views = (x.t(), x[:, ::2], x[3:, 1::3].t(), x.view(67, 3, -1).permute(2, 0, 1))
    dtypes = (torch.bool, torch.int64, torch.bfloat16, torch.uint8)
    return *(v.contiguous() for v in views), *(x.to(dtype).T.contiguous() for dtype in dtypes)


def _turned(x: torch.Tensor) -> Any:
    """Copies backwards, of whole vectors and of rests of them."""
    views = [x.flip(1), x.flip(0), x.flip(0, 1), x.rot90(), x.rot90(-1)]
    views += [x.flip(0).t(), x.t().flip(0)]
    return *(v * 1 for v in views), x[:, :3].flip(1) * 2, x.to(torch.uint8).flip(1)


def _mirrored(x: torch.Tensor) -> Any:
    """Edges and corners beside one, two and three dims."""
    pad = torch.nn.functional.pad
    found = []
    for mode in ("reflect", "replicate"):
        found += [pad(x[0], (2, 3), mode=mode), pad(x, (0, 1, 2, 0), mode=mode)]
        found += [pad(x, (1, -2, -1, 2), mode=mode), pad(x[None], (3, 1, 2, 2, 1, 1), mode=mode)]
    return tuple(found)


WIDE = torch.arange(5.0 * 6 * 9).reshape(5, 6, 9).sin()


def _rows(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """By an index that is the same for all elements of a row."""
    outer = i[:, None, None].expand(-1, 6, 9)
    inner = i[None, :, None].expand(5, -1, 9)
    found = [x.gather(0, outer), x.gather(1, inner), x.scatter(0, outer, 2.0)]
    found += [x.scatter_add(-2, inner, x * 2), torch.zeros_like(x).scatter_add(0, outer, x)]
    found += [(x > 0).scatter(1, i.flip(0)[:2][None, :, None].expand(5, -1, 9), x < 0.2)]
    for kind in ("sum", "prod", "mean", "amax", "amin"):
        found += [x.scatter_reduce(0, outer, x + 1, kind, include_self=b) for b in (True, False)]
    return tuple(found)


def _windows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.unfold(-1, 4, 2) * 1, x.unfold(1, 3, 1) * 1, x.unfold(0, 2, 3),
        x[:, :, 1:].unfold(2, 1, 5),
        x.transpose(0, 2).unfold(1, 2, 2), x.unfold(0, 5, 1),
    )  # fmt: skip


CASES = {
    "rows by an expanded index": Case(_rows, (WIDE, torch.tensor([3, 0, 3, 4]))),
    "rows by an expanded index, dynamic": Case(_rows, (WIDE, torch.tensor([3, 0, 3, 4])), True),
    "windows of dims": Case(_windows, (WIDE,)),
    "windows of dims, dynamic": Case(_windows, (WIDE,), True),
    "copies of views": Case(_copies, (torch.randn(201, 134).round(),)),
    "copies backwards": Case(_turned, (torch.randn(37, 67).mul(9).round(),)),
    "mirrored edges": Case(_mirrored, (DEEP,)),
    "identity, more rows than a byte counts": Case(
        lambda x: (torch.eye(300) * x[0, 1], torch.eye(9, 300, dtype=torch.int64)), (X,)
    ),
    "windows": Case(lambda x: x.as_strided((5, 4), (3, 2), 1), (X,)),
    "windows, dynamic": Case(lambda x: x.as_strided((x.shape[0], 4), (3, 2), 1), (X,), True),
    "slice bounds": Case(_bounds, (X,)),
    "slice bounds, dynamic": Case(_bounds, (X,), True),
    "slice by sizes, dynamic": Case(_sizes, (X, torch.ones(2, 7)), True),
    "view of a floor division, dynamic": Case(
        lambda x: x.view(x.shape[0] // 2, 2, -1).transpose(0, 1).reshape(2, -1), (X,), True
    ),
    "expand to an equal size, dynamic": Case(
        lambda x: x[:, :1].expand(x.shape[0] // 2 + (x.shape[0] + 1) // 2, 3), (X,), True
    ),
    "repeat by sizes, dynamic": Case(lambda x, y: x.repeat(y.shape[0], 1, 2), (X, I3), True),
    "roll by sizes, dynamic": Case(lambda x: x.roll((1, -8), (0, 1)), (X,), True),
    "pad by sizes, dynamic": Case(
        lambda x, y: torch.nn.functional.pad(x, (1, y.shape[0]), value=3.0), (X, I3), True
    ),
    "pad to a size, dynamic": Case(_padded, (X,), True),
    "triangle by sizes, dynamic": Case(lambda x, y: x.tril(-y.shape[0] + 2), (X, I3), True),
    "slice_scatter, dynamic": Case(
        lambda x, y: (
            aten.slice_scatter(x, y, 1, 1, 4),
            aten.slice_scatter(x, y, 1, -3, END),
            aten.slice_scatter(x, y, 1, 0, 6, 2),
            aten.slice_scatter(x, y, 1, -6, END, 2),
        ),
        (X, -torch.ones(4, 3)),
        True,
    ),
    "slice_backward": Case(
        lambda g: (
            aten.slice_backward(g, [4, 9], 1, 2, 8, 1),
            aten.slice_backward(g, [4, 12], 1, 0, END, 2),
        ),
        (X,),
    ),
    "select_backward": Case(lambda g: aten.select_backward(g, [4, 3, 6], 1, -1), (X,)),
    "embedding_dense_backward": Case(
        lambda g, i: (
            aten.embedding_dense_backward(g, i, 5, -1, False),
            aten.embedding_dense_backward(g, i, 5, 2, False),
            aten.embedding_dense_backward(g, i, 5, 0, True),
        ),
        (torch.randn(2, 3, 4), torch.tensor([[2, 2, 0], [4, 2, 0]])),
    ),
    "index, dims apart": Case(lambda x, i, j: x[:, i, :, j], (DEEP, I3, I3)),
    "index, dims together": Case(lambda x, i, j: x[:, i, j], (DEEP, I3, I3.int())),
    "index, broadcast": Case(lambda x, i, j: x[i[:, None] - 1, j], (DEEP, I3.clamp(max=1), I3)),
    "index, dynamic": Case(lambda x, i: (x[:, i], x[i, -i]), (X, I3), True),
    "index by a 0-d tensor": Case(
        lambda x, i: (aten.index.Tensor(x, [i]), x.take(i), aten.index_put(x, [i], x[0])),
        (X, torch.tensor(-2)),
    ),
    "_unsafe_view": Case(lambda x: aten._unsafe_view(x, [3, 8]), (X,)),
    "_unsafe_index": Case(lambda x, i: aten._unsafe_index(x, [None, i]), (X, I3)),
    "index_put, dims apart": Case(
        lambda x, i, v: (
            x.index_put((i,), v),
            aten.index_put(x, [None, i], v[:, None, :5].sum(), False),
            aten.index_put(x, [i.clamp(max=1), None, i], v[:, :3, 0, :1], True),
        ),
        (DEEP, torch.tensor([1, 0]), -torch.ones(2, 3, 4, 5)),
    ),
    "index_put, dynamic": Case(
        lambda x, i: (
            aten.index_put(x, [None, i], x[:, :3] * 2, True),
            aten.index_put(x, [i], x[:3], True),
        ),
        (X, I3),
        True,
    ),
    "_unsafe_index_put": Case(
        lambda x, i: aten._unsafe_index_put(x, [i], x[:3] + 1, True), (X, I3)
    ),
    "index_put with a mask": Case(
        lambda x, v: (
            aten.index_put(x, [x > 5], v[0]),
            aten.index_put(x, [x[:, 0] > 5], v),
            aten.index_put(x, [None, v > 2], v[0], True),
        ),
        (X, torch.arange(6.0)),
    ),
    "amax keeps NaN": Case(
        lambda x, i: x.scatter_reduce(0, i, torch.tensor([5.0, NAN, 1.0]), "amax"),
        (torch.tensor([1.0, 2.0, NAN, 4.0]), torch.tensor([0, 1, 3])),
    ),
    "scatter with reduction": Case(
        lambda x, i: (
            x.scatter(0, i, x[:1], reduce="add"),
            x.scatter(1, i, 3.0, reduce="multiply"),
            x.scatter(1, i, 3.0),
        ),
        (X, torch.tensor([[0, 1, 3, 1]])),
    ),
    "scatter, an index longer than the tensor": Case(
        lambda x, i: x.scatter(0, i, i.float()), (torch.zeros(2), torch.tensor([0, 1, 0, 1, 1]))
    ),
    "many duplicates": Case(
        lambda x, i, v: (x.scatter_add(0, i, v), x.index_add(0, i, v)),
        (torch.zeros(3), torch.arange(200_000) % 3, torch.ones(200_000)),
    ),
    "without elements": Case(
        lambda x, i: (
            x[:0, i], x[i], x.gather(0, i[:, None].expand(0, 6)), x[:, 0:0].repeat(2, 2),
            x.index_add(0, i, x[:0]), torch.cat([x[:0], x, torch.zeros(0)]), x[:0].flip(0),
        ),
        (X, torch.zeros(0, dtype=torch.int64)),
    ),
}  # fmt: skip

BEYOND = {
    "embedding": Case(lambda x, i: aten.embedding(x, i), (X, torch.tensor([1, 4]))),
    "embedding, negative": Case(lambda x, i: aten.embedding(x, i), (X, torch.tensor([1, -1]))),
    "index_select": Case(lambda x, i: x.index_select(1, i), (X, torch.tensor([10**12]))),
    "gather": Case(lambda x, i: x.gather(1, i), (X, torch.tensor([[6]]))),
    "gather, negative": Case(lambda x, i: x.gather(1, i), (X, torch.tensor([[-1]]))),
    "index": Case(lambda x, i: x[i], (X, torch.tensor([-5]))),
    "index of two": Case(lambda x, i: x[i, i], (X, torch.tensor([3, 4]))),
    "index_put": Case(lambda x, i: x.index_put((i,), x[:1]), (X, torch.tensor([3_000_000]))),
    "index_put of two": Case(
        lambda x, i: x.index_put((i, i), x[0, :1], True), (X, torch.tensor([-3_000_000]))
    ),
    "scatter": Case(lambda x, i: x.scatter(0, i, 1.0), (X, torch.tensor([[3_000_000]]))),
    "scatter_add": Case(lambda x, i: x.scatter_add(0, i, x), (X, torch.full((1, 1), 10**12))),
    "scatter_add of rows": Case(
        lambda x, i: x.scatter_add(0, i[:, None, None].expand(1, 6, 9), x),
        (WIDE, torch.tensor([5])),
    ),
    "gather of rows": Case(
        lambda x, i: x.gather(0, i[:, None, None].expand(1, 6, 9)), (WIDE, torch.tensor([-1]))
    ),
    "put": Case(lambda x, i: x.put(i, x[0, :1]), (X, torch.tensor([24]))),
    "masked_scatter": Case(lambda x, s: x.masked_scatter(x > 2, s), (X, torch.ones(3))),
}


@cache
def _compiled() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    programs = {
        name: Program(name, case.function, case.tensors, case.dynamic)
        for table in (CASES, BEYOND)
        for name, case in table.items()
    }
    compile_together(list(programs.values()))
    return programs


together = compile_group("movement", 5)


@together
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    _compiled()[name].assert_agrees(equal_nan=True)


@together
@pytest.mark.parametrize("columns", [7, 10, 13])
def test_padding_cuts_where_sizes_exceed_what_they_are_padded_to(columns: int) -> None:
    program = _compiled()["pad to a size, dynamic"]
    x = torch.arange(8.0 * columns).reshape(8, columns)
    for ours, theirs in zip(program.run([x]), program.eager([x]), strict=True):
        assert torch.equal(ours, theirs)


@together
@pytest.mark.parametrize("name", BEYOND)
def test_an_index_out_of_range_raises(name: str) -> None:
    from torch_max_backend.errors import IndexOutOfBoundsError

    with pytest.raises(IndexOutOfBoundsError, match="out of bounds"):
        _compiled()[name].run()


def test_a_view_beyond_its_argument_is_refused() -> None:
    from tests.conformance.program import Program, trace_program
    from torch_max_backend import UnsupportedOperatorError

    with pytest.raises(UnsupportedOperatorError):
        trace_program(Program("beyond", lambda x: aten.as_strided(x[1:], [4], [1], 0), [X]))


def test_a_result_that_is_an_expanded_view_with_gaps() -> None:
    from torch_max_backend import max_backend

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y[:, 2:4:3].expand(-1, 4, -1), y.sum()

    x = torch.arange(40.0).reshape(5, 4, 2)
    ours = torch.compile(function, backend=max_backend)(x)[0]
    theirs = function(x)[0]
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.bfloat16])
def test_copies_of_views_in_any_order_of_the_dims(dtype: torch.dtype) -> None:
    from torch_max_backend import max_backend

    random = Random(7)
    sizes = (1, 2, 2, 3, 4, 4, 7, 9, 14, 17, 33, 40)
    views = []
    while len(views) < 40:
        shape = [*random.choices(sizes, k=random.randint(1, 5)), random.choice((16, 20, 9000))]
        random.shuffle(shape)
        if 5000 < math.prod(shape) < 200_000:
            order = random.sample(range(len(shape)), len(shape))
            x = torch.randint(0, 250, shape).to(dtype)
            views.append((x, order, random.choice((1, 1, 2, 3, -2))))

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for x, (_, order, step) in zip(tensors, views, strict=True):
            turned = x.permute(order)
            results.append((turned.flip(-1) if step < 0 else turned[..., ::step]).contiguous())
        return results

    tensors = [x for x, _, _ in views]
    for ours, theirs in zip(
        torch.compile(function, backend=max_backend)(*tensors), function(*tensors), strict=True
    ):
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()
