"""Blocks of models of protein structure: results, gradients, other lengths, forces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.models import structures as s
from torch_max_backend import max_backend


def pairs(n: int) -> Tensor:
    return torch.randn(1, n, n, 16)


def frames(n: int) -> tuple[Tensor, Tensor]:
    q, _ = torch.linalg.qr(torch.randn(1, n, 3, 3))
    return q, torch.randn(1, n, 3)


BLOCKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Any, ...]]]] = {
    "triangles": (lambda: s.TriangleMultiplication(16, 8, False), lambda n: (pairs(n),)),
    "pair bias": (
        lambda: s.PairBiasAttention(16, 2),
        lambda n: (pairs(n), torch.arange(n)[None] < n - 2),
    ),
    "outer product": (
        lambda: s.OuterProductMean(8, 4, 16),
        lambda n: (torch.randn(1, 5, n, 8),),
    ),
    "transition": (lambda: s.Transition(16), lambda n: (pairs(n),)),
    "invariant points": (
        lambda: s.InvariantPointAttention(12, 16, 2, 4, 3),
        lambda n: (torch.randn(1, n, 12), pairs(n), *frames(n)),
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_results_and_gradients_at_several_lengths(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    block, arguments = BLOCKS[name][0](), BLOCKS[name][1]
    before = counters["stats"]["unique_graphs"]
    compiled = torch.compile(block, backend=max_backend, fullgraph=True, dynamic=True)
    for n in (7, 11):
        args = arguments(n)
        expected, ours = block(*args), compiled(*args)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
        grads = [
            torch.autograd.grad(y.square().sum(), tuple(block.parameters()))
            for y in (expected, ours)
        ]
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == before + 1


def test_invariance_holds() -> None:
    torch.manual_seed(0)
    block = BLOCKS["invariant points"][0]()
    compiled = torch.compile(block, backend=max_backend, fullgraph=True)
    x, z, rotations, shifts = BLOCKS["invariant points"][1](6)
    turn, _ = torch.linalg.qr(torch.randn(3, 3))
    with torch.no_grad():
        moved = compiled(x, z, turn @ rotations, shifts @ turn.T + 5.0)
        torch.testing.assert_close(moved, compiled(x, z, rotations, shifts), rtol=1e-3, atol=1e-4)


@pytest.fixture
def atoms() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    edges = torch.tensor([(i, j) for i in range(6) for j in range(6) if i != j]).T
    return torch.randint(0, 4, (6,)), torch.randn(6, 3), edges.contiguous()


def test_an_equivariant_layer_turns_with_its_input(atoms: tuple[Tensor, Tensor, Tensor]) -> None:
    _, at, edges = atoms
    layer, x = s.EquivariantLayer(8), torch.randn(6, 8)
    compiled = torch.compile(layer, backend=max_backend, fullgraph=True)
    turn, _ = torch.linalg.qr(torch.randn(3, 3))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, at, edges), layer(x, at, edges))
        features, moved = compiled(x, at @ turn.T + 3.0, edges)
        same, unmoved = compiled(x, at, edges)
    torch.testing.assert_close(features, same, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moved, unmoved @ turn.T + 3.0, rtol=1e-4, atol=1e-4)


def test_training_on_forces(atoms: tuple[Tensor, Tensor, Tensor]) -> None:
    """Forces are a gradient; the loss's gradient is one of that. torch.func.grad inside of what is
    compiled leaves one backward to AOTAutograd."""
    kinds, at, edges = atoms
    potential = s.Potential()
    wanted = torch.randn(6, 3)

    def energy(at: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(potential, parameters, (kinds, at, edges))

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        gradient, value = torch.func.grad_and_value(energy)(at, parameters)
        return (gradient + wanted).square().mean() + value.square()

    parameters = dict(potential.named_parameters())
    compiled = torch.compile(loss, backend=max_backend, fullgraph=True)
    found = []
    for function in (loss, compiled):
        value = function(parameters)
        found.append(
            (value, torch.autograd.grad(value, tuple(parameters.values()), allow_unused=True))
        )
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


def test_forces_of_a_compiled_energy(atoms: tuple[Tensor, Tensor, Tensor]) -> None:
    kinds, at, edges = atoms
    potential = s.Potential()
    compiled = torch.compile(potential, backend=max_backend, fullgraph=True)
    at.requires_grad_()
    forces = [torch.autograd.grad(f(kinds, at, edges), at)[0] for f in (potential, compiled)]
    torch.testing.assert_close(forces[1], forces[0], rtol=1e-4, atol=1e-5)
