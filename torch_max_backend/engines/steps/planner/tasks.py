"""What a graph does once its views are resolved: operations on memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.sizes import Size, Sizes
from torch_max_backend.engines.steps.planner.views import View


@dataclass(frozen=True)
class Number:
    """An operand that is one number, the same everywhere."""

    value: float | int | bool
    dtype: str


@dataclass(eq=False)
class Pointwise:
    """One element-wise operation; dims of one element are left out.

    Attributes:
        name: Of the instruction; ``copy`` stores its operand.
        operands: What it reads, each as large as ``space``.
        space: The sizes over which it runs.
        to: Where its result lies.
        dtype: Of the result.
        origin: The FX node behind it.
        after: Tasks that have to run before for another reason than what it reads.
        inline: Whether those that read its result may compute it themselves.
    """

    name: str
    operands: list[View | Number]
    space: Sizes
    to: View
    dtype: str
    origin: Any = None
    after: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> list[View]:
        return [o for o in self.operands if isinstance(o, View)]

    @property
    def writes(self) -> list[View]:
        return [self.to]


@dataclass(eq=False)
class Reduce:
    """A reduction of the last dim.

    Attributes:
        kind: ``sum``, ``prod``, ``max`` or ``min``.
        operand: What is reduced; its last dim is.
        to: Where the result lies: a view without the last dim.
        origin: The FX node behind it.
        after: As of ``Pointwise``.
    """

    kind: str
    operand: View
    to: View
    origin: Any = None
    after: list[Any] = field(default_factory=list)

    @property
    def space(self) -> Sizes:
        return self.operand.shape

    @property
    def reads(self) -> list[View]:
        return [self.operand]

    @property
    def writes(self) -> list[View]:
        return [self.to]


@dataclass(eq=False)
class Kernel:
    """A call of a Mojo kernel.

    Attributes:
        symbol: Its name.
        parameters: Its compile-time parameters.
        outputs: Where its results lie.
        inputs: What it takes.
        origin: The FX node behind it.
        after: As of ``Pointwise``.
    """

    symbol: str
    parameters: Mapping[str, Any]
    outputs: list[View]
    inputs: list[View]
    origin: Any = None
    after: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> list[View]:
        return self.inputs

    @property
    def writes(self) -> list[View]:
        return self.outputs


@dataclass(eq=False)
class Branch:
    """Tasks of which a flag chooses.

    Attributes:
        flag: One bool.
        chosen: What runs if it is true.
        otherwise: What runs if not.
        results: Memory that both fill.
        origin: The FX node behind it.
        after: As of ``Pointwise``.
    """

    flag: View
    chosen: list[Task]
    otherwise: list[Task]
    results: list[View]
    origin: Any = None
    after: list[Any] = field(default_factory=list)

    @property
    def blocks(self) -> list[list[Task]]:
        return [self.chosen, self.otherwise]

    @property
    def reads(self) -> list[View]:
        return [self.flag, *_reads(self.blocks)]

    @property
    def writes(self) -> list[View]:
        return self.results


@dataclass(eq=False)
class Loop:
    """Tasks that run again and again.

    Attributes:
        before: What runs once, first: it fills the carried memory.
        condition: What sets the flag.
        body: What runs as long as the flag is true.
        flag: Memory of one bool.
        results: The carried memory: rounds read and write it.
        origin: The FX node behind it.
        after: As of ``Pointwise``.
    """

    before: list[Task]
    condition: list[Task]
    body: list[Task]
    flag: View
    results: list[View]
    origin: Any = None
    after: list[Any] = field(default_factory=list)

    @property
    def blocks(self) -> list[list[Task]]:
        return [self.before, self.condition, self.body]

    @property
    def reads(self) -> list[View]:
        return _reads(self.blocks)

    @property
    def writes(self) -> list[View]:
        return self.results


def _reads(blocks: list[list[Task]]) -> list[View]:
    return [view for block in blocks for task in block for view in task.reads]


Task = Pointwise | Reduce | Kernel | Branch | Loop


@dataclass(eq=False)
class Lowered:
    """A graph as tasks.

    Attributes:
        tasks: In an order in which they can run.
        outputs: The memory of each result, dense.
        shapes: The sizes of each result.
        constants: Memory that is filled when the plan is made.
        sizes: Memory that is filled when the sizes are known: with these int64 numbers.
        ranges: Memory that is filled when the sizes are known: start and step of its numbers.
        checks: Pairs of sizes that have to be equal.
        aliases: Values that lie in the memory of an argument, and that argument.
    """

    tasks: list[Task]
    outputs: list[Value]
    shapes: list[Sizes]
    constants: dict[Value, torch.Tensor]
    sizes: dict[Value, Sizes]
    ranges: dict[Value, tuple[Size, Size]]
    checks: list[tuple[Size, Size]]
    aliases: dict[Value, Value] = field(default_factory=dict)
