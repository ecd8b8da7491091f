"""What nnsight (0.8) waits for inside a module, without importing it.

nnsight sets a forward of its own, a controller, on every module that it wraps: it hands the
module's arguments and results to the code of a trace. A module that runs as one compiled function
calls none of the controllers of its children.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from torch import nn

_SOURCE = "nnsight.intervention.source"


def is_controller(forward: Any) -> bool:
    """Whether a forward is one that nnsight has set, which does nothing outside a trace."""
    source = sys.modules.get(_SOURCE)
    return source is not None and isinstance(forward, source.Controller)


def tracing(module: nn.Module) -> Any:
    """What runs the trace that a module is part of now, with the module's name in it and the names
    of its arguments, its skipping and its results; or ``None``."""
    source = sys.modules.get(_SOURCE)
    if source is None or (state := module.__dict__.get(source.STATE)) is None:
        return None
    found = state.active()
    return None if found[0] is None else found


def waits_inside(trace: Any) -> bool:
    """Whether code of a trace waits for, or keeps, something inside a module.

    Args:
        trace: What ``tracing`` says of the module.
    """
    interleaver, path, own = trace
    places = (*interleaver.parked, *interleaver.observers, *interleaver.sourced)
    return any(p.startswith(f"{path}.") and p not in own for p in places)


def passed(trace: Any, modules: Iterable[nn.Module]) -> None:
    """Count a call of modules that ran without their controllers: a trace numbers the calls.

    Args:
        trace: What ``tracing`` says of the module around them.
        modules: The modules.
    """
    interleaver = trace[0]
    for module in modules:
        inner = tracing(module)
        if inner is not None and inner[0] is interleaver:
            for place in inner[2]:
                interleaver.counts[place] = interleaver.counts.get(place, 0) + 1


__all__ = ["is_controller", "passed", "tracing", "waits_inside"]
