"""Making what the store lacks: plans, or one MAX module for several graphs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING

from torch_max_backend import environment
from torch_max_backend.cache import store
from torch_max_backend.errors import CacheError, CompilationError, StepsError
from torch_max_backend.log import get_logger, say, several
from torch_max_backend.process import fork_safety

if TYPE_CHECKING:
    from max.engine import Model
    from max.graph import Module

    from torch_max_backend.driver.job import Job
    from torch_max_backend.engines.steps.planner.plan import Plan

log = get_logger("pipeline")


def make_plans(jobs: Sequence[Job]) -> dict[Job, Plan]:
    """Plan those jobs that the steps engine can run, and store the plans.

    Raises:
        StepsError: One cannot be, and its engine is to be ``steps``, or torch runs what it cannot.
        CompilationError: A library of kernels cannot be built, and the engine is to be ``steps``.
    """
    from torch_max_backend.driver.compile_files import keep_plan
    from torch_max_backend.engines.steps.plan_text import text_of
    from torch_max_backend.engines.steps.serialize import serialized
    from torch_max_backend.engines.steps.tables import kernels_of
    from torch_max_backend.runtime.resident import release_builder

    found: dict[Job, Plan] = {}
    for job in jobs:
        if job.engine == "max":
            continue
        try:
            plan = job.plan()
            job.clock.lap("plan")
            if environment.verbose():
                say(text_of(plan))
            kernels_of(plan)
            job.clock.lap("kernels")
        except (StepsError, CompilationError) as e:
            if job.is_cut(e):
                raise
            if isinstance(e, CompilationError):
                _tell_of_kernels(str(e))
            else:
                log.info("MAX compiles a graph: %s", e)
            continue
        found[job] = plan
        keep_plan(job, plan)
        if job.caching:
            store.put(job.entry, serialized(plan), job.parts, [job.entry])
            job.clock.lap("store")
    if found:
        release_builder()
    return found


@cache
def _tell_of_kernels(problem: str) -> None:
    """Warn, once a problem: MAX takes far longer, and nothing else would say why."""
    log.warning("MAX compiles a graph, as kernels for its steps cannot be built. %s", problem)


def compile_together(jobs: Sequence[Job]) -> list[Model]:
    """Compile jobs as one module, here or in a process of its own, and store the artifact."""
    from torch_max_backend.driver.compile_files import keep
    from torch_max_backend.engines.max.loading import load_models, load_serialized
    from torch_max_backend.engines.max.module import (
        build_module,
        compile_module,
        serialized,
        without_calls,
    )
    from torch_max_backend.engines.max.worker import compile_elsewhere
    from torch_max_backend.process.compile_slots import compile_place

    fork_safety.check_compile()
    background, clock = bool(jobs[0].options.background), jobs[0].clock
    traces = [job.trace for job in jobs]
    module, libraries = build_module(traces)
    if environment.verbose():
        show_module(module)
    clock.lap("build")
    what, count = described(jobs)
    try:
        with nullcontext(False) if background else compile_place() as here:
            if here:
                compiled = compile_module(module, libraries, what, count)
            else:
                artifact = compile_elsewhere(module, libraries, what, count, background=background)
    except CompilationError as e:
        if without_calls(e, traces):
            return compile_together(jobs)
        raise
    clock.lap("compile")
    keep(jobs, module, lambda: serialized(compiled) if here else artifact)
    models = load_models(compiled) if here else load_serialized(artifact)
    clock.lap("load")
    if jobs[0].caching:
        keys = [job.entry for job in jobs]
        try:
            artifact = serialized(compiled) if here else artifact
        except CacheError as e:
            store.not_stored(keys, e)
        else:
            for job in jobs:
                store.put(job.entry, artifact, job.parts, keys)
        clock.lap("store")
    return models


def described(jobs: Sequence[Job]) -> tuple[str, int]:
    """What jobs are, for messages, and how many operators they have."""
    count = sum(job.operators for job in jobs)
    graphs = "a graph" if len(jobs) == 1 else f"{len(jobs)} graphs"
    return f"{graphs} of {several(count, 'operator')}", count


def show_module(module: Module) -> None:
    """Print a MAX module."""
    say(str(module.mlir_module))
