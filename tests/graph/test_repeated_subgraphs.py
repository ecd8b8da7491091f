"""Finding the parts of a graph that repeat."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx import Graph, Node

from torch_max_backend.graph.repeated_subgraphs import find_regions

aten = torch.ops.aten


def _value(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


class _Maker:
    """Builds graphs of layers that look like a transformer's."""

    def __init__(self) -> None:
        self.graph = Graph()

    def given(self, *shape: int) -> Node:
        node = self.graph.placeholder(f"p{len(self.graph.nodes)}")
        node.meta["val"] = _value(*shape)
        return node

    def call(self, op: object, *args: object, shape: tuple[int, ...] = (4, 8)) -> Node:
        node = self.graph.call_function(op, args)
        node.meta["val"] = _value(*shape)
        return node

    def layer(self, x: Node, width: int = 16, scale: float = 1.0, mask: Node | None = None) -> Node:
        up, down = self.given(8, width), self.given(width, 8)
        h = self.call(aten.mul.Tensor, x, scale)
        h = self.call(aten.mm.default, h, up, shape=(4, width))
        h = self.call(aten.relu.default, h, shape=(4, width))
        h = self.call(aten.neg.default, h, shape=(4, width))
        h = self.call(aten.mm.default, h, down)
        if mask is not None:
            h = self.call(aten.add.Tensor, h, mask)
        return self.call(aten.add.Tensor, h, x)

    def nodes(self, *results: Node) -> list[Node]:
        self.graph.output(results)
        return [n for n in self.graph.nodes if n.op == "call_function"]


def _label(node: Node) -> str:
    args = ["%" if isinstance(a, Node) else a for a in node.args]
    return f"{node.target} {args} {tuple(node.meta['val'].shape)}"


def _heavy(node: Node) -> bool:
    return node.target is aten.mm.default


def _find(maker: _Maker, *results: Node) -> list[tuple[int, int, int, int]]:
    """Instances, nodes, inputs and outputs of each region."""
    regions = find_regions(maker.nodes(*results), _label, _heavy)
    for region in regions:
        taken = [n for instance in region.instances for n in instance.nodes]
        assert len(set(taken)) == len(taken)
        assert len({len(i.inputs) for i in region.instances}) == 1
    return [
        (len(r.instances), len(r.instances[0].nodes), len(r.instances[0].inputs), len(r.outputs))
        for r in regions
    ]


@pytest.mark.parametrize("depth", [2, 3, 12])
def test_layers_are_one_region(depth: int) -> None:
    maker = _Maker()
    x = maker.call(aten.exp.default, maker.given(4, 8))
    for _ in range(depth):
        x = maker.layer(x)
    x = maker.call(aten.neg.default, x)
    assert _find(maker, x) == [(depth, 6, 3, 1)]


def test_what_all_layers_share_is_one_input() -> None:
    maker = _Maker()
    x, mask = maker.given(4, 8), maker.given(4, 8)
    for _ in range(4):
        x = maker.layer(x, mask=mask)
    assert _find(maker, x) == [(4, 7, 4, 1)]


def test_every_value_used_outside_is_an_output() -> None:
    maker = _Maker()
    x = maker.given(4, 8)
    kept = []
    for _ in range(3):
        x = maker.layer(x)
        kept.append(next(n for n in reversed(maker.graph.nodes) if n.target is aten.neg.default))
    assert _find(maker, x, kept[1]) == [(3, 6, 3, 2)]


def test_stages_of_different_widths_are_regions_of_their_own() -> None:
    maker = _Maker()
    x = maker.given(4, 8)
    for width in (16, 16, 16, 32, 32):
        x = maker.layer(x, width)
    assert sorted(_find(maker, x)) == [(2, 6, 3, 1), (3, 6, 3, 1)]


@pytest.mark.parametrize("differ", [{"scale": 2.0}, {"width": 32}], ids=["a constant", "a shape"])
def test_layers_that_differ_are_no_region(differ: dict[str, float]) -> None:
    maker = _Maker()
    x = maker.layer(maker.layer(maker.given(4, 8)), **differ)
    assert _find(maker, x) == []


def test_layers_wired_otherwise_are_no_region() -> None:
    maker = _Maker()
    x = maker.given(4, 8)

    def block(first: bool) -> Node:
        a = maker.call(aten.mm.default, x, maker.given(8, 8))
        b = maker.call(aten.neg.default, a)
        c = maker.call(aten.neg.default, b)
        d = maker.call(aten.neg.default, c if first else b)
        e = maker.call(aten.neg.default, d)
        return maker.call(aten.add.Tensor, e, x)

    assert _find(maker, block(True), block(False)) == []


def test_layers_without_a_heavy_node_stay_to_be_fused() -> None:
    maker = _Maker()
    x = maker.given(4, 8)
    for _ in range(30):
        x = maker.call(aten.exp.default, maker.call(aten.neg.default, x))
    assert _find(maker, x) == []


def test_a_tuple_never_crosses_a_border() -> None:
    maker = _Maker()
    x = maker.given(4, 8)
    for _ in range(4):
        pair = maker.graph.call_function(aten.split.Tensor, (x, 4, 1))
        pair.meta["val"] = (_value(4, 4), _value(4, 4))
        halves = [maker.call(operator.getitem, pair, i, shape=(4, 4)) for i in range(2)]
        y = maker.call(aten.mm.default, halves[0], maker.given(4, 8))
        y = maker.call(aten.neg.default, y)
        x = maker.call(aten.add.Tensor, y, x)
    nodes = maker.nodes(x, halves[1])

    def label(node: Node) -> str:
        return f"{node.target} {[a for a in node.args if not isinstance(a, Node)]}"

    for region in find_regions(nodes, label, _heavy):
        for instance in region.instances:
            crossing = [*instance.inputs, *(instance.nodes[o] for o in region.outputs)]
            assert all(isinstance(n.meta["val"], torch.Tensor) for n in crossing)
