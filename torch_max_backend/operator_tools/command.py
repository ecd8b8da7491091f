"""The commands ``ops`` and ``ops new``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

from torch_max_backend.log import say

# MAX is imported when a command runs, not when it is described.


def add_commands(commands: Any, command: Any) -> None:
    """Add both.

    Args:
        commands: The subparsers of the command line.
        command: Adds a command with its handler to these.
    """
    ops = command(
        commands,
        _ops,
        "ops",
        "what becomes of an ATen operator: lowered where, decomposed into what, or missing why",
        "Tells, for each overload that NAME stands for, where its lowering is, or what it is "
        "decomposed into, or why it is missing. NAME is an overload (aten.gelu.default), an "
        "operator (aten.gelu, gelu), or a pattern (*gelu*). Without NAME: how many there are of "
        "each. Ends with 1 if there is no such operator.",
    )
    ops.add_argument("name", metavar="NAME", nargs="?")
    new = command(
        commands,
        _new,
        "ops new",
        "in a checkout: write the files of a new lowering",
        "Writes the stub of a lowering, its row in the conformance tables or its test, and says "
        "what to do next. For a checkout of the repository with its development environment.",
    )
    new.add_argument("name", metavar="NAME", help="such as aten.hardtanh or aten.add.Tensor")
    new.add_argument(
        "--family",
        metavar="FILE",
        help="the file in torch_max_backend/ops/, without .py; by default that of its namesakes",
    )
    new.add_argument(
        "--kernel",
        action="store_true",
        help="with a Mojo kernel of its own, element by element, and its graph for GPUs",
    )


def _ops(parsed: argparse.Namespace) -> int:
    if parsed.name is None:
        sys.stdout.write(summary())
        return 0
    from torch_max_backend.operator_tools.lookup import describe, find

    found = find(parsed.name)
    if not found.fates:
        say(f"error: torch has no operator {parsed.name!r} here.")
        if found.similar:
            say(f"Similar names: {', '.join(found.similar)}")
        return 1
    for fate in found.fates:
        sys.stdout.write("\n".join(describe(fate)) + "\n")
    return 0


def summary() -> str:
    """How many overloads and operators of ATen there are of each outcome."""
    from torch_max_backend.operator_tools.coverage import catalogue
    from torch_max_backend.operator_tools.reasons import missing_by_reason

    fates = catalogue()
    overloads = Counter(f.outcome for f in fates)
    lowered = {f.base for f in fates if f.outcome == "lowered"}
    decomposed = {f.base for f in fates if f.outcome == "decomposed"} - lowered
    core = [f for f in fates if f.core]
    lines = [
        f"{len(fates)} overloads of ATen: {overloads['lowered']} lowered, "
        f"{overloads['decomposed']} decomposed, {overloads['functionalized']} written as their "
        f"functional namesakes, {overloads['refused']} missing.",
        f"{len(lowered)} operators have a lowering, {len(decomposed)} more are decomposed.",
        f"Of {len(core)} core overloads, {sum(f.outcome == 'refused' for f in core)} are missing.",
        "",
        "Missing operators, by reason:",
    ]
    grouped = missing_by_reason(fates)
    lines += [f"{len(names):5}  {why.title}" for why, names in grouped.items()]
    lines += ["", "`ops NAME` tells of one; `operators` prints all, as docs/ops.md has them."]
    return "\n".join(lines) + "\n"


def _new(parsed: argparse.Namespace) -> int:
    from torch_max_backend.operator_tools.scaffold import ScaffoldError, checkout, scaffold

    try:
        written = scaffold(checkout(), parsed.name, family=parsed.family, kernel=parsed.kernel)
    except ScaffoldError as e:
        say(f"error: {e}")
        return 1
    sys.stdout.write(written.report())
    return 0
