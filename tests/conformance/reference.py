"""Compiled programs beside eager ones and their float64 truth."""

from __future__ import annotations

import math

import torch

from tests.conformance.closeness import difference
from tests.conformance.program import Program
from tests.conformance.samples import weights_of


def complaint(program: Program) -> str | None:
    """What is wrong with the results of a compiled program; ``None`` if nothing is."""
    try:
        return difference(program.run(), program.eager(), truth(program))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


# Functions that eager's own float64 is not the truth of: near 5.5 it is wrong in the seventh digit.
_BESSEL = {
    "special.bessel_j0": ("besselj", 0),
    "special.bessel_j1": ("besselj", 1),
    "special.bessel_y0": ("bessely", 0),
    "special.bessel_y1": ("bessely", 1),
}


def truth(program: Program) -> list[torch.Tensor] | None:
    """The program's results with float64 or complex128 arguments; ``None`` if torch cannot."""
    known = _BESSEL.get(program.name.partition("-")[0])
    if known is not None:
        x = program.tensors[0].detach()
        if not program.tensors[0].requires_grad:
            return [_bessel(x, *known)]
        return _bessel_gradients(x, *known)
    try:
        return program.truth()
    except Exception:
        return None


def _bessel_gradients(x: torch.Tensor, function: str, order: int) -> list[torch.Tensor]:
    """What ``gradients_of`` has of a function of these: the sum, in float64 alone, and its
    gradient."""
    zero, one = _bessel(x, function, 0), _bessel(x, function, 1)
    slope = -one if order == 0 else zero - one / x.double()
    weights = weights_of(x.double())
    total = (weights * (one if order else zero)).sum()
    return [total, weights * slope] if x.dtype == torch.float64 else [weights * slope]


def _bessel(x: torch.Tensor, function: str, order: int) -> torch.Tensor:
    import mpmath

    def exact(value: float) -> float:
        # y is infinite at 0, and not a real number below it.
        if function == "bessely" and value <= 0:
            return -math.inf if value == 0 else math.nan
        return float(getattr(mpmath, function)(order, value))

    values = [exact(value) for value in x.detach().double().flatten().tolist()]
    return torch.tensor(values, dtype=torch.float64).reshape(x.shape)
