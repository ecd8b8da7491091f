"""Which copies of views become one strided copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from torch_max_backend.graph.passes.strided_copies import gather_copies

aten = torch.ops.aten
X = torch.arange(96.0 * 96).reshape(96, 96)


def _gathered(function: Callable[[Tensor], Tensor], x: Tensor) -> GraphModule:
    module = make_fx(function, tracing_mode="fake")(x)
    gather_copies(module)
    return module


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t().contiguous(),
        lambda x: (x + 1)[:, ::2].contiguous(),
        lambda x: (
            x[3:].view(3, 31, 96).permute(2, 0, 1)[1:].clone(memory_format=torch.contiguous_format)
        ),
        lambda x: x.t().contiguous() * 2,
        lambda x: x.view(2, 48, 96).unfold(2, 48, 24).select(0, 1).transpose(0, 2).contiguous(),
    ],
)
def test_one_strided_copy(function: Callable[[Tensor], Tensor]) -> None:
    module = _gathered(function, X)
    targets = [n.target for n in module.graph.nodes if n.op == "call_function"]
    assert aten.as_strided.default in targets[-3:]
    assert aten.clone.default not in targets
    torch.testing.assert_close(module(X), function(X))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        pytest.param(lambda x: x[1:, 5:].contiguous(), X, id="read in order"),
        pytest.param(lambda x: x.t().contiguous(), X[:9, :9], id="small, and not dense"),
        pytest.param(lambda x: x[:32].t().clone(), X, id="keeps the order of the memory"),
        pytest.param(lambda x: x[:, ::2].t().contiguous(), X.t(), id="of another order"),
        pytest.param(lambda x: x[:, ::2].contiguous() * 2, X, id="a near step of what is fused"),
        pytest.param(lambda x: x[:1].expand(96, 96).t().contiguous(), X, id="expanded"),
    ],
)
def test_others_stay(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    module = _gathered(function, x)
    targets = [n.target for n in module.graph.nodes if n.op == "call_function"]
    assert aten.as_strided.default not in targets
    torch.testing.assert_close(module(x), function(x))


def test_dims_of_one_element_and_dims_that_lie_together_do_not_reach_the_kernel() -> None:
    """`einsum` copies `[batch, heads, features, 1, positions, 1]`: the last dim is no line."""
    x = torch.arange(2.0 * 6 * 8 * 96).reshape(2, 6, 8, 96)
    function = lambda x: x.permute(0, 3, 1, 2)[:, :, None, :, :, None].contiguous()  # noqa: E731
    module = _gathered(function, x)
    (copy,) = (n for n in module.graph.nodes if n.target is aten.as_strided.default)
    assert copy.args[1:] == ([2, 96, 48], [4608, 1, 96], 0)
    torch.testing.assert_close(module(x), function(x))
