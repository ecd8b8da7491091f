"""The rewriting of complex graphs, without compiling: the rewritten graph runs in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tracing import traced
from torch_max_backend.graph.passes.complex_pairs import real_pairs
from torch_max_backend.graph.passes.complex_values import is_complex
from torch_max_backend.graph.signature import Signature, analyse
from torch_max_backend.runtime.complex_adapter import with_pairs


def _rewritten(
    function: Callable[..., Any], *arguments: Tensor, dynamic: bool = False
) -> tuple[Callable[[list[Any]], list[Any]], Signature]:
    with torch.no_grad():
        module = traced(function, *arguments, dynamic=dynamic)
    real_pairs(module)
    assert not any(is_complex(n.meta.get("val")) for n in module.graph.nodes)
    signature = analyse(module).signature
    return with_pairs(lambda given: list(module(*given)), signature), signature


def _complex(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.complex64)


@pytest.mark.parametrize("given", [_complex(3, 4), _complex(4, 3).T, _complex(3, 4).conj()])
def test_arguments_and_results_are_pairs(given: Tensor) -> None:
    def function(z: Tensor) -> tuple[Tensor, Tensor]:
        return z * (2 - 1j), z.abs()

    run, signature = _rewritten(function, given)
    assert (signature.pairs, signature.pair_outputs) == ([0], [0])
    scaled, size = run([given])
    torch.testing.assert_close(scaled, given * (2 - 1j))
    torch.testing.assert_close(size, given.abs())


def test_a_graph_without_complex_numbers_stays_as_it_is() -> None:
    module = traced(lambda x: x + 1, torch.ones(3))
    before = list(module.graph.nodes)
    real_pairs(module)
    assert list(module.graph.nodes) == before
    assert analyse(module).signature.pairs == []


def test_an_argument_that_is_returned_is_that_argument() -> None:
    class Passing(torch.nn.Module):
        def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
            return z, z + 1

    z = _complex(3)
    module = torch.fx.symbolic_trace(Passing())
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(z)
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = torch.ops.aten.add.Tensor
            node.meta["val"] = (fake, fake + 1) if node.op == "output" else fake
    real_pairs(module)
    run = with_pairs(lambda given: list(module(*given)), analyse(module).signature)
    same, other = run([z])
    assert same is z
    torch.testing.assert_close(other, z + 1)


@pytest.mark.parametrize("conjugate", [False, True])
def test_an_argument_that_is_written_to(conjugate: bool) -> None:
    def function(z: Tensor) -> Tensor:
        z.mul_(2j)
        return z.abs() + 1

    def given() -> Tensor:
        return _complex(5).conj() if conjugate else _complex(5)

    z, expected = given(), given()
    run, _ = _rewritten(function, given())
    outcome = function(expected)
    (found,) = run([z])[-1:]
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(found, outcome)


def test_planes_are_not_made_pairs_between_operators() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = torch.complex(x, y)
        return torch.view_as_real(z.exp())[..., 0] + (z * z).real

    with torch.no_grad():
        module = traced(function, torch.ones(3), torch.ones(3))
    real_pairs(module)
    used = {str(n.target) for n in module.graph.nodes if n.op == "call_function"}
    assert not used & {"aten.cat.default", "aten.select.int"}


def test_symbolic_sizes() -> None:
    def function(z: Tensor) -> Tensor:
        return z.reshape(-1, z.shape[-1] // 2).sum(0) + z.shape[0]

    run, _ = _rewritten(function, _complex(4, 6), dynamic=True)
    for z in (_complex(4, 6), _complex(5, 8)):
        torch.testing.assert_close(run([*z.shape, z])[0], function(z))


def test_nodes_keep_the_users_line() -> None:
    with torch.no_grad():
        module = traced(lambda z: z * z, _complex(3))  # here
    real_pairs(module)
    lines = [n.meta.get("stack_trace") or "" for n in module.graph.nodes if n.op == "call_function"]
    assert lines
    assert all("# here" in line for line in lines)
