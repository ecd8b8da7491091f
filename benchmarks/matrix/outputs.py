"""What a model returned, as tensors, and how far it is from what it should be."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torch_max_backend.compat.tracing import pytree
from torch_max_backend.log import several

# Largest difference from eager float32 beside eager's largest value, where float64 says nothing.
TOLERANCE = 2e-4
# How many times eager's distance from float64 ours may be, give or take what a float32 can tell.
SLACK = 3.0
RESOLUTION = 1e-6


def tensors(value: Any) -> list[Tensor]:
    """All tensors in an output: in tuples, lists, mappings and attributes, such as those of a
    cache of keys and values."""
    return list(_tensors(value, set()))


def _tensors(value: Any, seen: set[int]) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
        return
    if id(value) in seen or isinstance(value, (nn.Module, type, str, bytes)):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, (list, tuple)):
        inner = list(value)
    else:
        inner = list(getattr(value, "__dict__", {}).values())
    for one in inner:
        yield from _tensors(one, seen)


def stirred(model: nn.Module, scale: float = 0.1) -> nn.Module:
    """The model; parameters that start as one number (zeros of a bias, of a gate that is closed at
    first) get normal noise, so that all of the model counts."""
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point() and p.numel() > 1 and bool((p == p.flatten()[0]).all()):
                p.add_(torch.randn_like(p) * scale)
    return model


def in_dtype(
    model: nn.Module, inputs: Mapping[str, Any], dtype: torch.dtype = torch.float64
) -> list[Tensor] | None:
    """What the model returns with all floats in a dtype, or ``None`` if it does not run so."""
    try:
        return tensors(copy.deepcopy(model).to(dtype)(**floats_as(dtype, inputs)))
    except (RuntimeError, TypeError, ValueError):
        return None


def floats_as(dtype: torch.dtype, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with all floats in a dtype."""

    def cast(x: Tensor) -> Tensor:
        return x.to(dtype) if x.is_floating_point() else x

    return pytree.tree_map_only(Tensor, cast, dict(inputs))


@dataclass(frozen=True)
class Errors:
    """How far an output is from eager's.

    Attributes:
        error: The largest difference from eager, beside the largest value of the same tensor.
        ours: The same, from float64; ``None`` where the model does not run so.
        theirs: Eager's own distance from float64.
        wrong: What is wrong, or "".
    """

    error: float
    ours: float | None
    theirs: float | None
    wrong: str


def errors(actual: list[Tensor], expected: list[Tensor], truth: list[Tensor] | None) -> Errors:
    """Compare tensor by tensor: number, dtypes and shapes, floats as above; integers are equal, or
    all tensors of them together off from float64's in at most ``SLACK`` times as many places as
    eager's (what a detector keeps of boxes that almost tie)."""
    if len(actual) != len(expected):
        return _wrong(f"{len(actual)} tensors instead of {len(expected)}")
    if truth is not None and [t.shape for t in truth] != [t.shape for t in expected]:
        truth = None
    error, ours, theirs, wrong = 0.0, 0.0, 0.0, ""
    integers = [i for i, e in enumerate(expected) if not e.is_floating_point()]
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if (a.dtype, a.shape) != (e.dtype, e.shape):
            return _wrong(
                f"tensor {i} is {a.dtype}{list(a.shape)} instead of {e.dtype}{list(e.shape)}"
            )
        if not e.is_floating_point():
            off = int((a != e).sum())
            if off and not (truth and _as_near(integers, actual, expected, truth)):
                wrong = wrong or f"tensor {i} ({e.dtype}) differs in {several(off, 'place')}"
            continue
        here = _distance(a, e)
        error = max(error, here)
        if truth is None or not truth[i].is_floating_point():
            right = here <= TOLERANCE
        else:
            from_truth, eager = _distance(a, truth[i]), _distance(e, truth[i])
            ours, theirs = max(ours, from_truth), max(theirs, eager)
            right = from_truth <= SLACK * eager + RESOLUTION
        if not right:
            wrong = wrong or f"tensor {i} is {here:.1e} from eager"
    if truth is None:
        return Errors(error, None, None, wrong)
    return Errors(error, ours, theirs, wrong)


def _as_near(
    which: list[int], ours: list[Tensor], theirs: list[Tensor], truth: list[Tensor]
) -> bool:
    off = sum(int((ours[i] != truth[i]).sum()) for i in which)
    return off <= SLACK * sum(int((theirs[i] != truth[i]).sum()) for i in which)


def _wrong(what: str) -> Errors:
    return Errors(float("inf"), None, None, what)


def _distance(a: Tensor, b: Tensor) -> float:
    """The largest difference beside the largest value of ``b``; infinite where one is NaN or
    infinite and the other is not the same."""
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    off = torch.where(same, 0.0, (a - b).abs()).nan_to_num(float("inf"))
    finite = b[b.isfinite()]
    size = float(finite.abs().max()) if finite.numel() else 1.0
    return float(off.max()) / (size or 1.0) if off.numel() else 0.0
