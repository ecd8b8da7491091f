"""Many small programs planned for the steps engine: no compiler runs but for kernels that are
missing, which are built together."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.program import Program, trace_program
from torch_max_backend.engines.steps.libraries import addresses
from torch_max_backend.engines.steps.planned import planned
from torch_max_backend.engines.steps.planner.instances import instance_of
from torch_max_backend.engines.steps.planner.plan import KernelStep, Plan
from torch_max_backend.engines.steps.run import StepExecutable
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.errors import CompilationError
from torch_max_backend.runtime.complex_adapter import with_pairs


def plan_program(program: Program) -> Plan | None:
    """The plan of a program; ``None`` if it has none: why stays with it."""
    try:
        program.trace = program.trace or trace_program(program)
        return planned(program.trace)
    except Exception as e:
        program.error = e
        return None


def plan_together(programs: Sequence[Program]) -> None:
    """Trace and plan programs; failures stay with their program."""
    plans = [plan_program(program) for program in programs]
    _build(
        [
            instance_of(step, plan.memory)
            for plan in plans
            for step in (() if plan is None else plan.steps)
            if isinstance(step, KernelStep)
        ]
    )
    for program, plan in zip(programs, plans, strict=True):
        trace = program.trace
        if plan is None or trace is None:
            continue
        try:
            run = StepExecutable(plan, trace.signature, trace.constants(), fuse=False)
        except Exception as e:
            program.error = e
        else:
            program.executable = with_pairs(run, trace.signature)


def _build(kernels: Sequence[Instance]) -> None:
    """Build kernels together. Each program that needs one which cannot be built fails later."""
    try:
        addresses(kernels)
    except CompilationError:
        if len(kernels) > 1:
            half = len(kernels) // 2
            _build(kernels[:half])
            _build(kernels[half:])
