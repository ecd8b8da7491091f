"""The tables of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The tables, from the result of each architecture."""
    run = [r for r in results if "skipped" not in r]
    right = [r for r in run if r["right"]]
    taken = [r for r in right if not r.get("eager")]
    whole = [r for r in right if not r["eager_operators"]]
    unbroken = [r for r in whole if not r["breaks"]]
    count = max(1, len(run))
    lines = [
        f"Of {len(run)} architectures, {len(right)} ({len(right) / count:.1%}) run and are right; "
        f"{len(taken)} ({len(taken) / count:.1%}) have no operator without a step, and need no "
        f"fallback; torch runs no operator of {len(whole)} ({len(whole) / count:.1%}). Dynamo "
        f"makes one graph of {len(unbroken)} of those. {len(results) - len(run)} have no small "
        "model here: their configuration cannot be made small by rule, or what they take is not "
        "known.",
        "",
        "## What is not right",
        "",
        *(_list(f"{r['name']}: {r.get('error') or r.get('wrong')}" for r in run if not r["right"])),
        "",
        "## What torch.compile changes with any backend",
        "",
        "The result is not eager's, and is that of `aot_eager`, which traces and leaves the graph "
        "to torch: they count as right.",
        "",
        *(_list(f"{r['name']}: {r['torch']}" for r in run if r.get("torch"))),
        "",
        *_ties(run),
        "## What torch runs",
        "",
        "| operator | in so many architectures |",
        "|---|---|",
    ]
    operators = Counter(op for r in run for op in r.get("eager", {}))
    lines += [f"| {op} | {n} |" for op, n in operators.most_common()]
    lines += [
        "",
        "## All",
        "",
        "| architecture | right | operators on steps | by torch | graphs | breaks "
        "| calls, with compiling, s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(r) for r in sorted(run, key=lambda r: r["name"])]
    skipped = sorted((r for r in results if "skipped" in r), key=lambda r: r["name"])
    lines += ["", "## Without a small model", ""]
    lines += _list(f"{r['name']}: {r['skipped']}" for r in skipped)
    return "\n".join(lines) + "\n"


def _ties(run: Sequence[dict[str, Any]]) -> list[str]:
    found = [f"{r['name']}: {r['ties']}" for r in run if r.get("ties")]
    return [
        "## Of what the order differs",
        "",
        "Of values that tie but for rounding, another one is the largest: the numbers are eager's.",
        "",
        *_list(found),
        "",
    ] * bool(found)


def _list(items: Any) -> list[str]:
    clean = (" ".join(str(item).replace("`", "'").split())[:200] for item in items)
    return [f"- `{item}`" for item in clean] or ["Nothing."]


def _row(r: dict[str, Any]) -> str:
    cells = (r["name"], "yes" if r["right"] else "**no**", r.get("operators", "-"))
    cells += (r.get("eager_operators", "-"), r.get("graphs", "-"), r.get("breaks", "-"))
    return f"| {' | '.join(map(str, (*cells, r.get('seconds', '-'))))} |"
