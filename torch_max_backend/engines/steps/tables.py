"""The tables of a plan, and of the plans that follow it, by sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_max_backend.engines.steps.libraries import addresses
from torch_max_backend.engines.steps.planner.instances import instance_of
from torch_max_backend.engines.steps.planner.plan import (
    KernelStep,
    Plan,
    ProgramStep,
)
from torch_max_backend.engines.steps.program_libraries import prepare
from torch_max_backend.engines.steps.rows_by_size import sizes_of
from torch_max_backend.engines.steps.shared import Shared
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.engines.steps.sized import Sized
from torch_max_backend.graph.expressions import evaluator


def kernels_of(plan: Plan) -> Mapping[Instance, int]:
    """The addresses of the kernels that a plan calls; those of its programs are there as well.

    Raises:
        CompilationError: A library cannot be built.
    """
    plans = [p for stage in plan.stages for p in (stage, *(pack.plan for pack in stage.packs))]
    kernels = [
        instance_of(s, p.memory) for p in plans for s in p.steps if isinstance(s, KernelStep)
    ]
    programs = [*dict.fromkeys(s.program for s in plan.all_steps if isinstance(s, ProgramStep))]
    prepare(programs, kernels)
    return addresses(list(dict.fromkeys(kernels)))


class Tables:
    """The tables of a plan, by the sizes of its arguments.

    Args:
        plan: The plan.
        addresses: Those of its kernels, if they are known.

    Raises:
        CompilationError: A kernel cannot be built.
    """

    # How many sizes are remembered.
    KEPT = 32

    def __init__(self, plan: Plan, addresses: Mapping[Instance, int] | None = None) -> None:
        self.plan = plan
        self.constants = [_aligned(c) for c in plan.constants]
        found = kernels_of(plan) if addresses is None else addresses
        self._shared = Shared(plan, found, [c.data_ptr() for c in self.constants])
        texts = sorted(_texts(plan))
        self._texts = texts
        self._evaluate: Callable[..., list[int]] | None = None
        if texts:
            self._evaluate = evaluator(texts, list(plan.symbols))
        self._then = None if plan.then is None else Tables(plan.then.plan, found)
        self._sized: dict[tuple[int, ...], Sized] = {}
        self._lock = threading.Lock()

    def of(self, symbols: tuple[int, ...]) -> Sized:
        """What the plan is for given values of its symbols."""
        found = self._sized.get(symbols)
        return self._made(symbols) if found is None else found

    def after(self, sized: Sized, counts: Sequence[int]) -> tuple[Tables, Sized]:
        """The tables of the plan that follows, and what that is once it is known what the plan of
        given sizes has counted."""
        then, following = self.plan.then, self._then
        assert then is not None
        assert following is not None
        known = dict(zip([*self.plan.symbols, *then.names], [*sized.symbols, *counts], strict=True))
        return following, following.of(tuple(known[name] for name in then.plan.symbols))

    def _made(self, symbols: tuple[int, ...]) -> Sized:
        values: dict[str, int] = {}
        if self._evaluate is not None:
            values = dict(zip(self._texts, self._evaluate(*symbols), strict=True))
        made = Sized(self._shared, symbols, values)
        with self._lock:
            while len(self._sized) >= self.KEPT:
                self._sized.pop(next(iter(self._sized))).retire()
            self._sized[symbols] = made
        return made


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A dense copy, so that nobody else changes it; never without memory."""
    if tensor.numel() == 0:
        return torch.zeros(8, dtype=tensor.dtype, device="cpu")
    return tensor.detach().contiguous().clone()


def _texts(plan: Plan) -> set[str]:
    """All sizes of a plan that are expressions."""
    found: set[Any] = set()
    for step in plan.steps:
        found.update(sizes_of(step))
    for memory in plan.memory:
        found.add(memory.size)
    for _, shape in plan.outputs:
        found.update(shape)
    for sizes in (*plan.sizes.values(), *plan.ranges.values(), *plan.checks):
        found.update(sizes)
    return {text for text in found if isinstance(text, str)}
