"""What becomes of every ATen operator: lowered, decomposed, or refused and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import torch

from torch_max_backend.compat.operators import OpOverload, has_kernel, operator_names
from torch_max_backend.graph.capability import missing
from torch_max_backend.graph.decompositions.table import decomposition_table
from torch_max_backend.graph.passes.complex_rules import rules
from torch_max_backend.operator_tools.reasons import missing_section
from torch_max_backend.registry.lowerings import registry

_DECOMPOSES = "CompositeImplicitAutograd"


@dataclass(frozen=True)
class Fate:
    """What becomes of one overload.

    Attributes:
        op: The overload.
        outcome: "lowered", "decomposed", "functionalized" (the graph holds the functional
            overload of the same name instead) or "refused".
        detail: The lowering's place, or the reason.
    """

    op: OpOverload
    outcome: str
    detail: str

    @property
    def base(self) -> str:
        """The name without namespace and overload."""
        return self.op._schema.name.partition("::")[2]

    @property
    def core(self) -> bool:
        """Whether torch counts it to its core operators."""
        return torch.Tag.core in self.op.tags


def catalogue() -> list[Fate]:
    """The fate of each overload of ATen, by name."""
    return fates(_overloads())


def fates(overloads: Iterable[OpOverload]) -> list[Fate]:
    """The fate of each of these overloads, which are all of their operators."""
    import torch_max_backend.ops  # noqa: F401

    table = decomposition_table()
    return list(_functionalized(_fate(op, table.keys()) for op in overloads))


def _overloads() -> Iterator[OpOverload]:
    for name in sorted(operator_names()):
        if name.startswith("aten::"):
            base, _, overload = name.removeprefix("aten::").partition(".")
            packet = getattr(torch.ops.aten, base, None)
            if packet is not None:
                yield getattr(packet, overload or "default")


def _fate(op: OpOverload, decomposed: Collection[object]) -> Fate:
    if op in registry:
        function = registry[op].function
        return Fate(op, "lowered", function.__module__.removeprefix("torch_max_backend."))
    if op in decomposed:
        return Fate(op, "decomposed", "by torch's table")
    if has_kernel(op, _DECOMPOSES):
        return Fate(op, "decomposed", "by its definition")
    if op in rules and not op._schema.is_mutable:
        return Fate(op, "decomposed", "into real numbers, by graph.complex_rules")
    return Fate(op, "refused", missing(op).reason)


def _functionalized(fates: Iterable[Fate]) -> Iterator[Fate]:
    """Those that write to an argument never reach a graph: their functional namesakes do."""
    fates = list(fates)
    working = {f.base for f in fates if f.outcome != "refused" and not f.op._schema.is_mutable}
    for fate in fates:
        written = fate.outcome == "refused" and fate.op._schema.is_mutable
        if written and fate.base.removesuffix("_") in working:
            yield Fate(fate.op, "functionalized", "")
        else:
            yield fate


def markdown() -> str:
    """The catalogue as a page."""
    fates = catalogue()
    working = {f.base for f in fates if f.outcome in ("lowered", "decomposed")}
    lowered = {f.base for f in fates if f.outcome == "lowered"}
    core = [f for f in fates if f.core]
    refused = [f for f in core if f.outcome == "refused"]
    lines = [
        "# Operators",
        "",
        f"{len(lowered)} ATen operators have a lowering, {len(working - lowered)} more are taken "
        f"apart into them. Of torch's {len(core)} core overloads {len(refused)} are refused.",
        "Made by `python -m torch_max_backend operators`; a test keeps it current.",
        "",
        "## Core operators",
        "",
        "| operator | what becomes of it | how |",
        "|---|---|---|",
        *(f"| `{_label(f)}` | {f.outcome} | {f.detail} |" for f in core),
        "",
        "## Other operators with a lowering",
        "",
        _names(lowered - {f.base for f in core}),
        "",
        "## Other operators that are decomposed",
        "",
        _names(working - lowered - {f.base for f in core}),
        "",
        *missing_section(fates),
    ]
    return "\n".join(lines) + "\n"


def _label(fate: Fate) -> str:
    return f"{fate.base}.{fate.op._overloadname}"


def _names(names: set[str]) -> str:
    return ", ".join(f"`{n}`" for n in sorted(names))
