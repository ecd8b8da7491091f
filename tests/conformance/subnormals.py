"""Operators on subnormal numbers: whether what runs them takes those for zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.conformance.program import Program
from tests.conformance.reference import truth

# How many times eager's own error against float64 a result may have.
_SLACK = 3.0
# In units of the smallest subnormal number, of which there are few in 16 bits.
_ROUNDING = 32
_ROUNDING_SHORT = 4


def make_subnormal(program: Program) -> None:
    """Replace the floating-point numbers of a program's arguments by subnormal ones, with the same
    signs: some of the smallest, some just below the smallest normal number."""
    program.tensors = [_subnormal(t) if t.is_floating_point() else t for t in program.tensors]


def _subnormal(tensor: torch.Tensor) -> torch.Tensor:
    kind = torch.finfo(tensor.dtype)
    count = round(1 / kind.eps)
    # Steps of a prime, so that neighbours differ.
    units = torch.arange(tensor.numel()) * 7919 % (count - 1) + 1
    values = (units.double() * (kind.tiny * kind.eps)).reshape(tensor.shape)
    signed = torch.where(tensor.detach().double() < 0, -values, values).to(tensor.dtype)
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.copy_(signed).requires_grad_(tensor.requires_grad)


def can_tell(program: Program) -> bool:
    """Whether a program's results differ where subnormal numbers count as zero."""
    kept = program.eager()
    if not torch.set_flush_denormal(True):
        return False
    try:
        flushed = program.eager()
    finally:
        torch.set_flush_denormal(False)
    return any(not torch.equal(_bits(a), _bits(b)) for a, b in zip(kept, flushed, strict=True))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.nan_to_num() if tensor.is_floating_point() else tensor


def complaint(program: Program) -> str | None:
    """What is wrong with a program's results for subnormal arguments; ``None`` if nothing is.
    Other than in :mod:`tests.conformance.closeness`, no distance is small."""
    return lost(program.run(), program.eager(), truth(program))


def lost(
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None,
) -> str | None:
    """What is wrong with results beside eager's and float64's."""
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if ours.is_complex():
            parts = [torch.view_as_real(t.resolve_conj()) for t in (ours, theirs)]
            wide = None if exact is None else [torch.view_as_real(exact[i].resolve_conj())]
            found = lost(parts[:1], parts[1:], wide)
            if found:
                return found
            continue
        if not ours.is_floating_point():
            if not torch.equal(ours, theirs):
                return f"result {i}: {ours} instead of {theirs}"
            continue
        kind = torch.finfo(ours.dtype)
        units = _ROUNDING_SHORT if kind.bits == 16 else _ROUNDING
        near = {"rtol": 64 * kind.eps, "atol": units * kind.tiny * kind.eps}
        right = torch.isclose(ours.double(), theirs.double(), **near, equal_nan=True)
        # Eager's NaN where a result overflows is not wanted.
        right |= ours.isinf() & theirs.isnan()
        if exact is not None and exact[i].is_floating_point():
            wide = exact[i].to(ours.dtype).double()
            right |= (ours.double() - wide).abs() <= _SLACK * (theirs.double() - wide).abs()
            right |= torch.isclose(ours.double(), wide, **near, equal_nan=True)
        if not bool(right.all()):
            at = int((~right).flatten().nonzero()[0])
            return f"result {i}[{at}]: {ours.flatten()[at]} instead of {theirs.flatten()[at]}"
    return None
