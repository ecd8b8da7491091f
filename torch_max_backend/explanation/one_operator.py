"""What becomes of one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Check:
    """What the backend makes of a call of an operator; true if torch runs none of it.

    Attributes:
        name: The operator.
        taken: Whether the backend runs all of it.
        engine: "steps", "max", "steps and max", or "" if nothing is taken.
        operators: The ATen overloads that it becomes.
        reasons: Why torch runs them, by overload; by "" if there is no graph of it at all.
    """

    name: str
    taken: bool
    engine: str
    operators: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.taken

    def __str__(self) -> str:
        whole = [o for o in self.operators if o != self.name]
        becomes = f" as {', '.join(whole)}" if whole else ""
        lines = [f"{self.name}: taken{becomes}, {self.engine}"]
        if not self.taken:
            lines = [f"{self.name}: torch runs it"]
            lines += [f"  {o}: {why}" if o else f"  {why}" for o, why in self.reasons.items()]
        return "\n".join(lines)


def check(
    operator: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Check:
    """Whether the backend takes one operator for these arguments, and why not.

    It is called once in eager PyTorch; nothing is compiled.

    Args:
        operator: An ATen overload (``torch.ops.aten.add.Tensor``), a function of torch, or any
            function of tensors.
        *args: Its arguments: shapes, dtypes and devices count.
        options: As for ``torch.compile(..., backend="max", options=...)``.
        **kwargs: Its keyword arguments.
    """
    from torch_max_backend.explanation import explain

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    found = explain(call, *args, options={"min_ops": 1, **(options or {})}, **kwargs)
    operators = [o for graph in found.graphs for o in graph.operators]
    reasons = {o.name: o.reason for o in operators if o.place == "eager"}
    if not operators or found.breaks:
        reasons[""] = "; ".join(dict.fromkeys(b.reason for b in found.breaks)) or (
            "there is nothing to compute: Dynamo finds no graph, or one of views alone"
        )
    engines = {p.engine for graph in found.graphs for p in graph.parts}
    return Check(
        _name(operator),
        not reasons,
        " and ".join(sorted(engines, reverse=True)),
        list(dict.fromkeys(o.name for o in operators)),
        reasons,
    )


def _name(operator: Any) -> str:
    from torch_max_backend.compat.operators import OpOverload

    if isinstance(operator, OpOverload):
        return str(operator)
    return str(getattr(operator, "__name__", operator))
