"""The graph that is planned: values and the operations that make them, free of MLIR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_max_backend.engines.steps.planner.sizes import Sizes


@dataclass(eq=False)
class Value:
    """A tensor of the graph.

    Attributes:
        dtype: Its dtype, by MAX's name (``float32``, ``bool``, ``int64``, ...).
        shape: Its sizes.
        node: The operation that makes it; ``None`` for inputs of the graph.
        index: Which of the results of ``node`` it is, or which input of the graph.
    """

    dtype: str
    shape: Sizes
    node: Node | None = None
    index: int = 0

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        made = "input" if self.node is None else self.node.op
        return f"<{self.dtype}[{', '.join(map(str, self.shape))}] of {made}>"


@dataclass(eq=False)
class Node:
    """One operation.

    Attributes:
        op: Its name: that of MAX's operation without dialect and suffix (``Add``, ``Reshape``), or
            ``Custom``.
        operands: What it computes from.
        results: What it makes.
        attributes: What else decides its result: sizes, ints, names.
        constant: Of a ``Constant`` its value.
        origin: The FX node whose lowering built it.
        blocks: Of ``If`` what runs if its operand is true, and if not; of ``While`` what tells
            whether to go on, and its body.
    """

    op: str
    operands: list[Value]
    results: list[Value] = field(default_factory=list)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constant: torch.Tensor | None = None
    origin: Any = None
    blocks: Sequence[Block] = ()


@dataclass(eq=False)
class Block:
    """Operations inside an operation.

    Attributes:
        arguments: Of a loop what each round is given; none of a branch, which takes what it needs
            from around it.
        nodes: The operations, in an order in which they can run.
        results: What they make; of what tells whether a loop goes on, that flag comes first.
    """

    arguments: Sequence[Value]
    nodes: list[Node]
    results: Sequence[Value]


@dataclass
class StepGraph:
    """What is planned.

    Attributes:
        inputs: The inputs, in order.
        mutable: Which inputs are written to.
        nodes: The operations, in an order in which they can run.
        outputs: The results, in order.
    """

    inputs: Sequence[Value]
    mutable: frozenset[int]
    nodes: list[Node]
    outputs: list[Value]
