"""Plans of functions, for tests of what the planner makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torch_max_backend.ops  # noqa: F401  registers the lowerings
from torch_max_backend.driver.passes import prepare
from torch_max_backend.engines.steps.planned import planned
from torch_max_backend.engines.steps.planner.plan import JumpStep, KernelStep, Plan
from torch_max_backend.engines.steps.run import StepExecutable
from torch_max_backend.graph.decompositions.table import decomposition_table


def traced(
    function: Callable[..., Any],
    arguments: Sequence[torch.Tensor],
    dynamic: bool = False,
    fuse: bool = False,
) -> tuple[Plan, StepExecutable]:
    """The plan of a function and what runs it, with programs that are compiled if ``fuse``. The
    function returns a list of tensors; what it writes to its arguments it writes at its end, by
    ``copy_``."""
    made = [t.clone(memory_format=torch.preserve_format) for t in arguments]
    kind = "symbolic" if dynamic else "fake"
    module = make_fx(function, decomposition_table(), kind, _allow_non_fake_inputs=True)(*made)
    trace = prepare(module)
    plan = planned(trace)
    return plan, StepExecutable(plan, trace.signature, trace.constants(), fuse=fuse)


def kinds(plan: Plan) -> Counter[str]:
    """How many steps of each kind a plan has: kernels by name, programs by their instructions."""
    found: Counter[str] = Counter()
    for step in plan.steps:
        if isinstance(step, KernelStep):
            found[step.symbol] += 1
        elif isinstance(step, JumpStep):
            found["jump"] += 1
        else:
            names = [i.name for i in step.program.instructions if i.name != "constant"]
            names += [kind for kind, _ in step.program.reductions]
            found[" ".join(names) or "copy"] += 1
    return found


def same_as_eager(
    function: Callable[..., Any], arguments: Sequence[torch.Tensor], dynamic: bool = False
) -> Plan:
    """Check results and written arguments of the steps of a function bit by bit, twelve calls: the
    last ones are answered by code that is written out. Returns the plan."""
    plan, executable = traced(function, arguments, dynamic)
    theirs = [t.clone(memory_format=torch.preserve_format) for t in arguments]
    expected = [t.clone() for t in function(*theirs)]
    for _ in range(12):
        ours = [t.clone(memory_format=torch.preserve_format) for t in arguments]
        found = executable(list(ours))
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    return plan
