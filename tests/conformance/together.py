"""Many small programs made ready to run for little time: as steps; ``test_by_max.py`` has MAX
compile a share of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tests.conformance.modules import compile_module_of
from tests.conformance.program import Program
from tests.conformance.steps import plan_together
from torch_max_backend import environment
from torch_max_backend.errors import StepsError

# Where programs are gathered instead of being made ready.
_gathered: list[Program] | None = None


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
    ``auto``, by steps or, what that engine refuses, by MAX. Failures stay with their program."""
    if _gathered is not None:
        _gathered.extend(programs)
        return
    engine = environment.engine()
    if engine == "max":
        compile_module_of(programs)
        return
    plan_together(programs)
    if engine == "auto":
        compile_module_of([p for p in programs if isinstance(p.error, StepsError)])


def gathered(make: Callable[[], Any]) -> list[Program]:
    """The programs that a function would have made ready to run."""
    global _gathered
    _gathered = []
    try:
        make()
        return _gathered
    finally:
        _gathered = None
