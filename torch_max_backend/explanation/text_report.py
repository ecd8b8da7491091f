"""An explanation as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch_max_backend.log import several

if TYPE_CHECKING:
    from torch_max_backend.explanation.report import Explanation, GraphReport, PartReport

# Operators of MAX that a graph's text names.
_SHOWN = 8


def text(found: Explanation) -> str:
    """For a terminal."""
    return "\n".join(_text(found))


def _text(found: Explanation) -> Iterator[str]:
    yield summary(found)
    for number, graph in enumerate(found.graphs):
        yield ""
        yield f"Graph {number} ({graph.kind}): {_count(graph)}"
        if graph.dynamic:
            yield f"  Symbolic sizes: {', '.join(graph.dynamic)}"
        if graph.saved:
            yield f"  Kept for backward: {size(graph.saved)}"
        if len(graph.steps) > 1:
            yield f"  Order: {' > '.join(folded(graph.steps))}"
        for k, part in enumerate(graph.parts):
            operators = several(part.operators, "operator")
            yield f"  Part {k}: {operators}, {_engine(part)}, {_cache(part)}"
            for name, why in part.kept.items():
                yield f"    Not as steps: {name}: {why}" if name else f"    Not as steps: {why}"
        for operator in graph.operators:
            if operator.place == "eager":
                yield f"  Eager: {operator.name} x{operator.count}: {operator.reason}"
                if operator.where:
                    yield f"    at {operator.where}"
        taken = [f"{o.name} x{o.count}" for o in graph.operators if o.place == "max"]
        if taken:
            more = f" and {len(taken) - _SHOWN} more" if taken[_SHOWN:] else ""
            yield f"  MAX: {', '.join(taken[:_SHOWN])}{more}"
        if graph.decomposed:
            parts = [f"{name} ({count})" for name, count in graph.decomposed.items()]
            more = f" and {len(parts) - _SHOWN} more" if parts[_SHOWN:] else ""
            yield f"  Decomposed: {', '.join(parts[:_SHOWN])}{more}"
    for number, cut in enumerate(found.breaks):
        yield ""
        yield f"Break {number}: {cut.reason.strip().splitlines()[0]}"
        if cut.where:
            yield f"  at {cut.where}"


def summary(found: Explanation) -> str:
    """In one line."""
    parts = [
        several(len(found.graphs), "graph"),
        several(len(found.breaks), "break"),
        f"{found.lowered:.1%} of operators on MAX",
        f"{found.compiles} to compile",
    ]
    if found.parameters:
        parts.append(f"{found.parameters:,} parameters ({size(found.parameter_bytes)})")
    return ", ".join(parts)


def markdown(found: Explanation) -> str:
    """With a table of operators for each graph."""
    lines = [f"**{summary(found)}**"]
    for number, graph in enumerate(found.graphs):
        lines += ["", f"## Graph {number}: {graph.kind}", "", _count(graph)]
        if graph.dynamic:
            lines += ["", f"Symbolic sizes: {', '.join(graph.dynamic)}"]
        if graph.saved:
            lines += ["", f"Kept for backward: {size(graph.saved)}"]
        if graph.parts:
            lines += ["", "| part | operators | engine | inputs | results | artifact |"]
            lines += ["|---|---|---|---|---|---|"]
            for k, p in enumerate(graph.parts):
                sizes = f"{size(p.inputs)} | {size(p.results)}"
                engine = _cell(_engine(p))
                lines.append(f"| {k} | {p.operators} | {engine} | {sizes} | {_cell(_cache(p))} |")
        lines += ["", "| operator | nodes | runs in | why | where |", "|---|---|---|---|---|"]
        lines += [
            f"| `{o.name}` | {o.count} | {'MAX' if o.place == 'max' else 'eager'} | "
            f"{_cell(o.reason)} | {_cell(o.where)} |"
            for o in graph.operators
        ]
        if graph.decomposed:
            lines += ["", "| decomposed | nodes |", "|---|---|"]
            lines += [f"| `{name}` | {count} |" for name, count in graph.decomposed.items()]
    if found.breaks:
        lines += ["", "## Breaks", "", "| reason | where |", "|---|---|"]
        lines += [f"| {_cell(b.reason)} | {_cell(b.where)} |" for b in found.breaks]
    return "\n".join(lines) + "\n"


def folded(steps: list[str]) -> list[str]:
    """Steps, each with the number of times that it comes in a row."""
    rows: list[tuple[str, int]] = []
    for step in steps:
        if rows and rows[-1][0] == step:
            rows[-1] = (step, rows[-1][1] + 1)
        else:
            rows.append((step, 1))
    return [step if count == 1 else f"{step} x{count}" for step, count in rows]


def size(count: int) -> str:
    """Bytes in words."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _count(graph: GraphReport) -> str:
    parts = f" in {len(graph.parts)} parts" if len(graph.parts) > 1 else ""
    return f"{several(graph.lowered, 'operator')} on MAX{parts}, {graph.eager} in eager PyTorch"


def _engine(part: PartReport) -> str:
    if part.engine == "steps":
        return several(part.steps, "step")
    return "compiled by MAX"


def _cache(part: PartReport) -> str:
    todo = "to be planned" if part.engine == "steps" else "to be compiled"
    return "in the cache" if part.cached else f"{todo} ({part.miss})"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
