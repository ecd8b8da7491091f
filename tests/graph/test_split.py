"""Cutting a graph into parts: what torch computes from the cut graph is what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._sympy.symbol import SymT, symbol_is_type

from tests.tracing import traced
from torch_max_backend.compat.torch_versions import optimization_hint
from torch_max_backend.graph.split import Split, split

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def sizes_from_data() -> Iterator[None]:
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        yield


def _between(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = (x @ w).relu()
    return y.erfinv() @ w + y.cos(), y.sum()


def _at_first(x: Tensor, w: Tensor) -> Tensor:
    return x.erfinv().sin() + w.cos().exp()


def _at_last(x: Tensor, w: Tensor) -> Tensor:
    return (x.sin() * w.cos()).erfinv()


def _apart(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return x.erfinv(), w.sin().cos()


def _chained(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = x.sin().erfinv().cos() + w
    return x


def _of_many(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    values, indices = x.sort()
    a, _, b = values.erfinv().split([1, 2, 1], 1)
    largest, at = (a * b).max(0)
    return largest, at, indices, w.unbind()[1] + 1


def _written(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    x.add_(0.1)
    y = x.erfinv()
    x.mul_(y)
    w.copy_(w.exp() + 1)
    return y + w, x.sum()


def _written_by_torch(x: Tensor, w: Tensor) -> Tensor:
    w.add_(x)
    return w.erfinv_().sin()


def _seen_later(x: Tensor, w: Tensor) -> Tensor:
    """What torch runs is a view of what MAX could write to."""
    seen = x.erfinv()
    x.copy_(w.sin() * 2)
    return seen + x


def _counted(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    places = x.nonzero()
    far = (places.float() / (x.shape[0] + 7)).erfinv()
    return far * 2 + places, w.new_ones(places.shape[0]).sum() * places.shape[0]


def _number(x: Tensor, w: Tensor) -> Tensor:
    n = w[0, 0].item()
    return x * n + (x / 9).erfinv()


def _of_products(x: Tensor, w: Tensor) -> Tensor:
    y = torch.cat([x.reshape(-1), w.reshape(-1)]).erfinv()
    return y.reshape(-1, 2).sum(1) + y.numel() + x.shape[0]


def _with_constants(x: Tensor, w: Tensor) -> Tensor:
    table = torch.arange(12.0).reshape(4, 3)[:, :1] / 20
    return (x + table).erfinv() * table + w.sum()


# A function, whether sizes are symbolic, and how many parts it is cut into if erfinv is refused.
CASES: dict[str, tuple[Callable[..., Any], bool, int]] = {
    "between": (_between, False, 2),
    "between dynamic": (_between, True, 2),
    "at first": (_at_first, False, 1),
    "at last": (_at_last, True, 1),
    "apart": (_apart, False, 1),
    "chained": (_chained, True, 4),
    "of many": (_of_many, False, 2),
    "written": (_written, False, 2),
    "written dynamic": (_written, True, 2),
    "written by torch": (_written_by_torch, False, 2),
    "seen later": (_seen_later, False, 1),
    "counted": (_counted, True, 2),
    "number": (_number, False, 2),
    "of products": (_of_products, True, 2),
    "with constants": (_with_constants, False, 2),
}


def _arguments(module: GraphModule, *tensors: Tensor) -> list[Any]:
    given = iter(tensors)
    found = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    return [next(given).clone() if isinstance(v, Tensor) else optimization_hint(v) for v in found]


def _cut(module: GraphModule, *targets: Any, least: int = 0) -> Split:
    names = {n.name for n in module.graph.nodes if n.target in targets}
    assert names
    found = split(module, names, least)
    for k, part in enumerate(found.parts):
        part.module.graph.lint()
        setattr(found.whole, f"part{k}", part.module)
    found.whole.graph.lint()
    return found


_REFUSED = (aten.erfinv.default, aten._local_scalar_dense.default)


@pytest.mark.parametrize("name", CASES)
def test_the_cut_graph_computes_the_same(name: str) -> None:
    function, dynamic, count = CASES[name]
    x, w = torch.rand(4, 4) / 3, torch.rand(4, 4) / 3
    module = traced(function, x.clone(), w.clone(), dynamic=dynamic)
    ours, theirs = _arguments(module, x, w), _arguments(module, x, w)
    expected = module(*theirs)
    found = _cut(module, *_REFUSED)
    torch.testing.assert_close(found.whole(*ours), expected)
    torch.testing.assert_close(ours, theirs)
    assert len(found.parts) == count
    assert not {n.target for p in found.parts for n in p.module.graph.nodes} & {*_REFUSED}


@pytest.mark.parametrize("name", CASES)
def test_a_part_knows_its_sizes(name: str) -> None:
    """Every symbol is an argument of its own, or a size of one, or comes from the part's data."""
    from torch_max_backend.graph.split import _symbols, _told

    function, dynamic, _ = CASES[name]
    module = traced(function, torch.rand(4, 4) / 3, torch.rand(4, 4) / 3, dynamic=dynamic)
    for part in _cut(module, *_REFUSED).parts:
        nodes = list(part.module.graph.nodes)
        known = set().union(*(_told(n) for n in nodes if n.op == "placeholder"))
        made = {s for n in nodes for s in _told(n) if symbol_is_type(s, SymT.UNBACKED_INT)}
        used = set().union(*(_symbols(n.meta.get("val")) for n in nodes))
        assert used <= known | made


def test_small_parts_stay_with_torch() -> None:
    module = traced(_chained, torch.rand(4, 4), torch.rand(4, 4))
    found = _cut(module, aten.erfinv.default, least=3)
    # sin; cos, add, sin twice; cos, add
    assert [len(p.nodes) for p in found.parts] == [3, 3]
    assert len(found.merged) == 3
    assert len(found.eager) == 6
    assert not _cut(module, aten.erfinv.default, least=10).parts


def test_writes_are_made_by_the_part_that_computes_them() -> None:
    module = traced(_written, torch.rand(4, 4), torch.rand(4, 4))
    found = _cut(module, aten.erfinv.default)
    by_part = [
        sum(n.target is aten.copy_.default for n in p.module.graph.nodes) for p in found.parts
    ]
    assert by_part == [1, 1]
    assert all(n.target is not aten.copy_.default for n in found.whole.graph.nodes)


def test_an_argument_that_is_looked_at_later_is_written_last() -> None:
    module = traced(_seen_later, torch.rand(4, 4), torch.rand(4, 4))
    whole = _cut(module, aten.erfinv.default).whole
    assert [n.target for n in whole.graph.nodes].count(aten.copy_.default) == 1
