"""Gradients beside finite differences, in float64.

As ``torch.autograd.gradcheck`` does in its fast mode: along one random direction, with its step and
tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tests.conformance.program import Program

_STEP, _ATOL, _RTOL = 1e-6, 1e-5, 1e-3

Run = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def gradcheck(program: Program) -> tuple[bool, str]:
    """Whether the compiled gradients are those of finite differences of the compiled program, and
    what is wrong if they are not though eager's are. A kink at a sample lets neither be.

    Args:
        program: One from ``samples.programs(..., gradients=True)``. If it is of float64 it returns
            a number and its gradients; any other agrees with nothing.
    """
    agrees, said = _agrees(program.run, program.tensors)
    if agrees or not _agrees(program.eager, program.tensors)[0]:
        return agrees, ""
    return False, said


def _agrees(run: Run, tensors: Sequence[torch.Tensor]) -> tuple[bool, str]:
    chance = torch.Generator().manual_seed(0)
    results = run(tensors)
    if len(results) != 1 + sum(t.requires_grad for t in tensors):
        return False, ""
    each = iter(results[1:])
    slope = 0.0
    ahead, behind = [], []
    for t in tensors:
        if not t.requires_grad:
            ahead.append(t)
            behind.append(t)
            continue
        direction = torch.randn(t.shape, generator=chance, dtype=t.dtype)
        slope += (next(each).conj() * direction).sum().real.item()
        ahead.append(t.detach() + _STEP * direction)
        behind.append(t.detach() - _STEP * direction)
    try:
        difference = (run(ahead)[0] - run(behind)[0]).item() / (2 * _STEP)
    except RuntimeError as e:
        return False, str(e)  # no longer a valid argument
    agrees = abs(difference - slope) <= _ATOL + _RTOL * abs(slope)
    return agrees, f"along a direction the gradient is {slope}, differences are {difference}"
