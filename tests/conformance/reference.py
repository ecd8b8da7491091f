"""Compiled programs beside eager ones and their float64 truth."""

from __future__ import annotations

import torch

from tests.conformance.closeness import difference
from tests.conformance.program import Program


def complaint(program: Program) -> str | None:
    """What is wrong with the results of a compiled program; ``None`` if nothing is."""
    try:
        return difference(program.run(), program.eager(), truth(program))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def truth(program: Program) -> list[torch.Tensor] | None:
    """The program's results with float64 or complex128 arguments; ``None`` if torch cannot."""
    try:
        return program.truth()
    except Exception:
        return None
