"""The comparison with finite differences finds a wrong gradient, and knows a kink."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.samples import programs

pytestmark = pytest.mark.xdist_group("compile-0")


@pytest.mark.parametrize(
    ("name", "factor", "agrees", "wrong"),
    [
        ("cos", 1.0, True, False),
        ("linalg.cholesky", 1.0, True, False),
        ("fft.rfft", 1.0, True, False),
        ("cos", 1.01, False, True),
        # The sample lies where eager's gradients are not those of differences either.
        ("nn.functional.hinge_embedding_loss", 1.0, False, False),
    ],
)
def test_a_wrong_gradient_is_found(name: str, factor: float, agrees: bool, wrong: bool) -> None:
    from tests.conformance.gradcheck import gradcheck

    program = next(programs(name, torch.float64, limit=1, gradients=True))
    # Eager in the place of a compiled model.
    program.executable = lambda given: [
        r if i == 0 else r * factor for i, r in enumerate(program.flat(*given))
    ]
    found, said = gradcheck(program)
    assert found is agrees
    assert bool(said) is wrong
