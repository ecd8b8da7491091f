"""The times of the steps of an executable."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_max_backend.engines.steps.plan_text import times_table
from torch_max_backend.engines.steps.planner.plan import Plan
from torch_max_backend.engines.steps.run import StepExecutable
from torch_max_backend.engines.steps.table import Table


def time_steps(executable: StepExecutable) -> Callable[[], str]:
    """Have an executable measure its steps; returns what tells of them so far."""
    plan = executable._plan
    spent = {id(stage): _zeros(stage) for stage in plan.stages}
    calls = 0

    def run(table: Table) -> int:
        nonlocal calls
        stage = table.sized.plan
        ticks = _zeros(stage)
        failed = table.run(ticks)
        spent[id(stage)].add_(ticks)
        calls += stage is plan
        return failed

    def text() -> str:
        nanoseconds = torch.cat([*spent.values()]).tolist()
        return times_table(plan.all_steps, nanoseconds, calls) if calls else ""

    executable._execute, executable._only = run, None
    return text


def _zeros(plan: Plan) -> torch.Tensor:
    return torch.zeros(len(plan.steps), dtype=torch.int64, device="cpu")
