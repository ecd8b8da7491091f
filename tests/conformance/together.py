"""Many small programs made ready to run for little time: as steps, and a share of them by MAX."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tests.conformance.modules import compile_module_of
from tests.conformance.program import Program
from tests.conformance.steps import plan_together
from torch_max_backend import environment
from torch_max_backend.errors import StepsError

# MAX compiles one program in so many, and what the steps engine refuses. A module costs it 12 CPU s
# and a second more a program.
SHARE = 24


def by_turns(
    cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]],
) -> dict[str, Program]:
    """Each case as a program, one static, the next dynamic, and so on; compiled together. For
    operators whose rows in ``families/`` run both ways."""
    programs = {
        name: Program(name, function, given, i % 2 == 1)
        for i, (name, (function, given)) in enumerate(cases.items())
    }
    compile_together(list(programs.values()))
    return programs


def both_ways(
    cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]],
) -> dict[str, Program]:
    """Each case as a static and as a dynamic program, ``{name}-static`` and ``{name}-dynamic``,
    compiled together."""
    programs = {
        f"{name}-{'dynamic' if dynamic else 'static'}": Program(name, function, given, dynamic)
        for name, (function, given) in cases.items()
        for dynamic in (False, True)
    }
    compile_together(list(programs.values()))
    return programs


def compile_together(programs: Sequence[Program]) -> None:
    """Make programs ready to run: by the engine of ``TORCH_MAX_BACKEND_ENGINE``; where that is
    ``auto``, by steps or, of a share that depends on names alone, by MAX. Failures stay with their
    program."""
    engine = environment.engine()
    chosen = [p for p in programs if engine == "max" or (engine == "auto" and _for_max(p.name))]
    left = [p for p in programs if p not in chosen]
    plan_together(left)
    if engine == "auto":
        chosen += [p for p in left if isinstance(p.error, StepsError)]
    compile_module_of(chosen)


def _for_max(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % SHARE == 0
