"""A plan: the steps of a graph, with sizes as expressions, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_max_backend.engines.steps.programs import Program

# A size at run time: a number, or a Python expression over the names of the symbols.
SizeText = int | str


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return getattr(torch, dtype).itemsize


@dataclass(frozen=True)
class Memory:
    """Memory that steps read and write.

    Attributes:
        kind: ``input`` (of the model, by ``index``), ``output`` (result ``index``), ``constant``
            (``index`` of the plan's constants), ``sizes`` and ``range`` (filled for given sizes),
            ``packed`` (``index`` of the plan's packs) or ``temporary`` (in the arena).
        dtype: Its dtype.
        size: How many elements it has.
        index: See ``kind``.
        first: The step that first uses it, of a temporary.
        last: The step that last uses it.
    """

    kind: str
    dtype: str
    size: SizeText
    index: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Place:
    """A tensor on memory: strides and offset in elements.

    Attributes:
        memory: Number of its memory in the plan.
        shape: Sizes.
        strides: Distances of neighbours along each dim.
        offset: Position of the first element.
    """

    memory: int
    shape: tuple[SizeText, ...]
    strides: tuple[SizeText, ...]
    offset: SizeText = 0


@dataclass(frozen=True)
class KernelStep:
    """A call of a kernel.

    Attributes:
        symbol: The kernel's name.
        parameters: Its compile-time parameters.
        outputs: Where its results lie.
        inputs: What it takes.
        origin: The operator behind it, for messages.
        owner: The operator whose lowering names the kernel's sources; "" for our own kernels.
    """

    symbol: str
    parameters: Mapping[str, Any]
    outputs: tuple[Place, ...]
    inputs: tuple[Place, ...]
    origin: str = ""
    owner: str = ""


@dataclass(frozen=True)
class ProgramStep:
    """A pass of element-wise instructions.

    Attributes:
        program: The instructions.
        space: The sizes over which it runs.
        reduced: How many of the last dims are reduced.
        inputs: What it reads, as large as ``space``.
        outputs: Where results lie, as large as ``space``, then those of the reductions, without the
            reduced dims.
        origin: The operators behind it, for messages.
    """

    program: Program
    space: tuple[SizeText, ...]
    reduced: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    origin: str = ""


@dataclass(frozen=True)
class JumpStep:
    """Goes on at another step.

    Attributes:
        target: The number of that step; that of all steps ends the plan.
        inputs: A bool: it goes on with the next step where that is true. None: it always jumps.
        origin: The operator behind it, for messages.
    """

    target: int
    inputs: tuple[Place, ...] = ()
    origin: str = ""

    @property
    def outputs(self) -> tuple[Place, ...]:
        return ()


Step = KernelStep | ProgramStep | JumpStep


@dataclass
class Plan:
    """The steps of a graph.

    Attributes:
        steps: In order.
        memory: What they read and write.
        constants: Contents of the memory that does not change.
        sizes: Contents of ``sizes`` memory, by number.
        ranges: Start and step of ``range`` memory, by number.
        outputs: Of each result its dtype and sizes.
        checks: Pairs of sizes that have to be equal.
        symbols: Of each symbol the input of the model and the dim that tell it.
        then: What follows, where the steps count what is a size from there on.
        packs: What is made of weights once, and again when they have changed.
    """

    steps: Sequence[Step]
    memory: Sequence[Memory]
    constants: Sequence[torch.Tensor]
    sizes: Mapping[int, tuple[SizeText, ...]]
    ranges: Mapping[int, tuple[SizeText, SizeText]]
    outputs: Sequence[tuple[str, tuple[SizeText, ...]]]
    checks: Sequence[tuple[SizeText, SizeText]]
    symbols: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    then: Then | None = None
    packs: Sequence[Pack] = ()

    @property
    def stages(self) -> list[Plan]:
        """This plan and those that follow, in order."""
        return [self, *(self.then.plan.stages if self.then is not None else ())]

    @property
    def all_steps(self) -> list[Step]:
        """The steps of all stages."""
        return [step for plan in self.stages for step in plan.steps]


@dataclass(frozen=True)
class Pack:
    """A weight in the form in which a kernel reads it fastest.

    Attributes:
        plan: What makes it, its only result.
        source: The input of the model that is the weight, the only one of ``plan``.
        text: The same for equal packs of whatever graph.
    """

    plan: Plan
    source: int
    text: str


@dataclass(frozen=True)
class Then:
    """The plan that follows another, whose last results are counts: int64 of one element.

    Attributes:
        plan: Its inputs are those of the plan before, and then all results of that.
        names: Its symbols that the counts are the values of.
        results: Of each result of the graph whether the plan before makes it, else ``plan``, and
            which result that is there.
    """

    plan: Plan
    names: tuple[str, ...]
    results: tuple[tuple[bool, int], ...]
