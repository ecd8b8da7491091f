"""When a result counts as torch's: it may differ from torch only as far as torch itself differs
from the float64 truth, give or take the tolerance torch's own tests use."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# How many times torch's own error against float64 a result may have.
_SLACK = 3.0
# How far from float64's a result may be where eager's is not finite, beside the largest.
_OVERFLOWED = 1e-3


def difference(
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    truth: Sequence[torch.Tensor] | None,
) -> str | None:
    """What is wrong with ``actual`` beside eager's ``expected``, or ``None``.

    Args:
        actual: Results under test.
        expected: Eager's results in the same dtype.
        truth: The results in float64, where there are any.
    """
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return (
                f"result {i} is {ours.dtype}{list(ours.shape)} instead of "
                f"{theirs.dtype}{list(theirs.shape)}"
            )
        try:
            torch.testing.assert_close(ours, theirs, equal_nan=True)
        except AssertionError as e:
            if truth is None or not _as_good(ours, theirs, truth[i]):
                return f"result {i}: {e}"
    return None


def _as_good(ours: torch.Tensor, theirs: torch.Tensor, truth: torch.Tensor) -> bool:
    if ours.is_complex() and truth.is_complex():
        ours, theirs, truth = (
            torch.view_as_real(t.resolve_conj().resolve_neg()) for t in (ours, theirs, truth)
        )
    if not ours.is_floating_point() or not truth.is_floating_point():
        return False
    rounded = truth.to(ours.dtype).double()
    ours, theirs, truth = ours.double(), theirs.double(), truth.double()
    finite = truth.isfinite() & theirs.isfinite()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    # Where eager's narrow dtype overflowed on the way, what is right is not wrong.
    size = rounded[rounded.isfinite()].abs().amax() if rounded.isfinite().any() else 0.0
    right = ((ours - truth).abs() <= _OVERFLOWED * size) | (ours == rounded)
    if not bool((same | finite | right).all()):
        return False
    error = ((theirs - truth).abs()[finite]).max() if finite.any() else torch.zeros(())
    excess = (ours - truth).abs()[finite] > _SLACK * error
    return not bool(excess.any())
