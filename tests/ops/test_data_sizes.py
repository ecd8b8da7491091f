"""Results whose size depends on data: what masks pick, distinct values, counts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
NAN = float("nan")

X = torch.tensor([[3.0, -1.0, 0.0, NAN], [2.0, 3.0, -0.0, 2.0], [-1.0, NAN, 5.0, 0.5]])
SOME = torch.tensor([[True, False, True, True], [False] * 4, [False, True, True, False]])
ROW = torch.tensor([False, True, True])
NONE = torch.zeros(3, 4, dtype=torch.bool)
LONG = torch.arange(200_000) % 7 == 3
NUMBERS = torch.tensor([2**62 + 1, 5, 2**62, 5, -(2**62) - 1, 2**62 + 1, 0])
TWICE = torch.tensor([[1, 2], [0, 3], [1, 2], [1, 0], [0, 3]])
COUNTS = torch.tensor([2, 0, 3, 1])


def _masked_values(x: torch.Tensor, mask: torch.Tensor) -> Any:
    picked = x[mask]
    return picked * 2 + 1, picked.sum(), torch.zeros(picked.shape[0], 2), picked.shape[0] * x


def _assigned(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> Any:
    return (
        torch.index_put(x, [mask], values),
        torch.index_put(x, [mask], x[mask] * 10),
        torch.index_put(x, [mask], x[mask], accumulate=True),
    )


def _sizes_alone(x: torch.Tensor, mask: torch.Tensor) -> Any:
    size = x.masked_select(mask).shape[0]
    return (
        torch.arange(size) * 1.5,
        torch.arange(2 * size + 1),
        x / mask.nonzero().shape[0],
        torch.ones(2, torch.unique(mask).shape[0]),
        torch.zeros_like(x).masked_scatter(mask, torch.arange(size) * 2.0),
    )


def _twice(x: torch.Tensor) -> Any:
    """Counted after what was counted before; results of each stage, one of them two times."""
    some = x[x > 0]
    few = some[some > 4]
    y = (x + 1).t()
    return few * 2, y, y, some.sum(), few.shape[0] + some.shape[0], y[y > 3], few.expand(2, -1)


def _routed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Each row by the expert that it is sent to."""
    x = x.nan_to_num()
    expert = (x @ w).argmax(-1)
    result = torch.zeros_like(x)
    for i in range(3):
        at = (expert == i).nonzero()[:, 0]
        result = result.index_add(0, at, (x[at] * (i + 1)).relu())
    return result


def _written(x: torch.Tensor, mask: torch.Tensor) -> Any:
    """Read before and after it is written to."""
    before = x[mask]
    x.mul_(2)
    return before, x[mask].cos()


CASES: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "sizes alone": (_sizes_alone, [X, SOME]),
    "nonzero": (lambda x, m: (x.nonzero(), m.nonzero(), m.nonzero(as_tuple=True)), [X, SOME]),
    "nonzero of none": (lambda m: m.nonzero(), [NONE]),
    "nonzero of many": (lambda m: (m.nonzero(), torch.arange(200_000)[m]), [LONG]),
    "argwhere": (lambda x: torch.argwhere(x > 0), [X]),
    "nonzero_static": (
        lambda m: (
            torch.nonzero_static(m, size=3),
            torch.nonzero_static(m, size=8, fill_value=-7),
        ),
        [SOME],
    ),
    "mask": (_masked_values, [X, SOME]),
    "mask of rows": (lambda x, m: (x[m], x.t()[:, m], x[m, 1:3]), [X, ROW]),
    "mask beside an index": (
        lambda x, m: (x[m, 1], x[m, :, None], x[:, None, 1:][m, 0]),
        [X, ROW],
    ),
    "mask, bfloat16": (lambda x, m: x[m], [X.bfloat16(), SOME]),
    "mask, bool": (lambda x, m: x[m], [X > 0, SOME]),
    "masked_select": (
        lambda x, m, r: (x.masked_select(m), x.masked_select(r[:, None])),
        [X, SOME, ROW],
    ),
    "values to a mask": (_assigned, [X, SOME, torch.arange(5.0)]),
    "values to rows": (
        lambda x, m, v: torch.index_put(x, [m], v),
        [X, ROW, torch.arange(8.0).reshape(2, 4)],
    ),
    "unique": (
        lambda x: (
            torch.unique(x),
            *torch.unique(x, return_inverse=True, return_counts=True),
        ),
        [NUMBERS],
    ),
    "unique of floats": (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        [torch.nan_to_num(X, 7.0)],
    ),
    "unique, NaN": (lambda x: torch.unique(x), [X]),
    "unique, bool": (lambda x: torch.unique(x, return_counts=True), [SOME]),
    "unique, uint8": (lambda x: torch.unique(x), [TWICE.to(torch.uint8)]),
    "unique of rows": (
        lambda x: (
            *torch.unique(x, dim=0, return_inverse=True, return_counts=True),
            torch.unique(x, dim=1),
        ),
        [TWICE],
    ),
    "unique_consecutive": (
        lambda x, y: (
            *torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            *torch.unique_consecutive(y, return_inverse=True, return_counts=True, dim=0),
        ),
        [torch.tensor([1, 1, 2, 1, 1, 1, 3]), TWICE.sort(0).values],
    ),
    "bincount": (
        lambda x, w: (
            torch.bincount(x),
            torch.bincount(x, minlength=9),
            torch.bincount(x, w),
        ),
        [TWICE.flatten(), torch.arange(10.0) / 3],
    ),
    "bincount, float64": (
        lambda x, w: torch.bincount(x, w),
        [TWICE.flatten(), torch.arange(10.0).double() / 3],
    ),
    "bincount of nothing": (
        lambda x: (torch.bincount(x), torch.bincount(x, minlength=2)),
        [torch.zeros(0, dtype=torch.int64)],
    ),
    "picked, then picked from": (_twice, [2 * X.nan_to_num(1.0)]),
    "experts": (_routed, [X, torch.arange(12.0).reshape(4, 3) % 5 - 2]),
    "written": (_written, [X, SOME]),
    "two masks": (lambda x, a, b: x[:, None][a][:, 0, b], [X, ROW, SOME[0]]),
    "no dims": (lambda x: x.nonzero(), [torch.tensor(2.0)]),
    "repeat_interleave": (
        lambda x, n: (
            torch.repeat_interleave(n),
            x.repeat_interleave(n, dim=1),
            x.repeat_interleave(n, dim=1, output_size=6),
        ),
        [X, COUNTS],
    ),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("data_sizes")
@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0, equal_nan=True)


@compile_group("data_sizes")
@pytest.mark.parametrize("name", ["values to a mask", "bincount", "repeat_interleave"])
def test_what_does_not_fit_raises(name: str) -> None:
    from torch_max_backend import ExecutionError

    program = _programs()[name]
    assert program.executable is not None
    given = [t.clone() for t in CASES[name][1]]
    given[{"values to a mask": 1, "bincount": 0, "repeat_interleave": 1}[name]] = {
        "values to a mask": ~SOME,
        "bincount": TWICE.flatten() - 1,
        "repeat_interleave": COUNTS - 1,
    }[name]
    with pytest.raises(ExecutionError):
        program.executable(given)


def test_sizes_vary_without_another_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do gradients, through a mask that picks anything between nothing and all."""
    from torch_max_backend import max_backend

    monkeypatch.setattr(torch._dynamo.config, "capture_dynamic_output_shape_ops", True)
    torch._dynamo.reset()
    calls = []

    def backend(module: Any, inputs: Any) -> Any:
        calls.append(module)
        return max_backend(module, inputs)

    @torch.compile(backend=backend, fullgraph=True)
    def chosen(x: torch.Tensor, mask: torch.Tensor) -> Any:
        picked = x[mask]
        return picked.exp(), picked.shape[0], picked.t()

    for share in (0.5, 0.0, 1.0, 0.3):
        x = torch.randn(40, 3, requires_grad=True)
        mask = torch.rand(40) < share
        exponentials, count, turned = chosen(x, mask)
        torch.testing.assert_close(exponentials, x[mask].exp())
        assert count == int(mask.sum())
        assert turned.stride() == x[mask].t().stride()
        (exponentials.sum() + 2 * turned.sum()).backward()
        torch.testing.assert_close(x.grad, mask[:, None] * (x.detach().exp() + 2))
    assert len(calls) == 1


def test_a_number_that_is_read_becomes_a_tensor_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x[:1].item() * torch.arange(3)

    options = {"fallback": "error"}
    compiled = torch.compile(function, backend="max", fullgraph=True, options=options)
    for x in (torch.tensor([0.5, 1]), torch.tensor([-2.0, 1])):
        torch.testing.assert_close(compiled(x), function(x))


def test_without_capture_dynamo_breaks_the_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (x + 1)[x > 0] * 2, backend="max")
    x = torch.randn(50)
    torch.testing.assert_close(compiled(x), (x + 1)[x > 0] * 2)
