"""Permuted arguments and results: what the model takes and returns, and what is left to views."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.tracing import traced
from torch_max_backend.graph.signature import analyse


def _permutations(trace: object) -> list[str]:
    nodes = trace.module.graph.nodes
    return [n.name for n in nodes if n.target is torch.ops.aten.permute.default]


def test_a_dense_permuted_argument_is_taken_as_it_lies() -> None:
    images = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    trace = analyse(traced(lambda x: x + 1, images))
    assert trace.signature.inputs[0].order == (0, 2, 3, 1)
    (stored,) = trace.stored.values()
    assert stored.meta["val"].shape == (2, 4, 5, 3)
    assert stored.meta["val"].is_contiguous()


def test_plain_expanded_and_written_arguments_are_left_alone() -> None:
    def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        z.add_(1)
        return x + y + z

    given = torch.zeros(3, 4), torch.zeros(1, 4).expand(3, 4), torch.zeros(4, 3).t()
    trace = analyse(traced(function, *given))
    assert [i.order for i in trace.signature.inputs] == [None, None, None]
    assert trace.stored == {}


def test_the_graph_computes_the_same_with_its_permutations() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = (x + 1).t()
        return z, (y * 2).permute(2, 0, 1)

    given = torch.rand(4, 3).t(), torch.rand(2, 3, 4)
    module = traced(function, *given)
    trace = analyse(module)
    assert _permutations(trace)
    module.recompile()
    for found, wanted in zip(module(*given), function(*given), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()


def test_one_node_returned_twice_is_one_result_of_the_model() -> None:
    module = traced(lambda x: (x + 1).t(), torch.zeros(3, 4))
    output = next(n for n in module.graph.nodes if n.op == "output")
    (result,) = output.args[0]
    output.args = ([result, result],)
    signature = analyse(module).signature
    assert [o.index for o in signature.outputs] == [0, 0]
    assert len(signature.layouts) == 1


def test_results_behind_the_exact_ones_are_never_copied() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        gaps = torch.empty_strided((3, 4), (1, 6)).copy_(y)
        return y[:, 1:3], y[:, 1:3], y.t()[1:3], gaps

    module = traced(function, torch.zeros(3, 4))
    first, *_ = analyse(module).signature.layouts
    assert first.strides
    relaxed = analyse(traced(function, torch.zeros(3, 4)), exact=1).signature.layouts
    assert relaxed[0].strides
    assert not any(layout.strides for layout in relaxed[1:])
