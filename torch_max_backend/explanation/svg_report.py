"""An explanation as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from torch_max_backend.explanation.text_report import folded, summary
from torch_max_backend.log import several

if TYPE_CHECKING:
    from torch_max_backend.explanation.report import Explanation, GraphReport

_WIDTH, _HEIGHT, _GAP, _MARGIN, _LINE = 260, 44, 26, 20, 18
_COLORS = {"max": ("#dbeafe", "#1d4ed8"), "eager": ("#fef3c7", "#b45309")}
# Characters that fit in a box.
_FIT = 38


def svg(found: Explanation) -> str:
    """A column for each graph: its parts and torch's operators from top to bottom."""
    columns = [list(_boxes(g)) for g in found.graphs]
    rows = max(map(len, columns), default=0)
    width = max(420, _MARGIN + len(columns) * (_WIDTH + _GAP))
    height = 4 * _MARGIN + rows * (_HEIGHT + _GAP) + _LINE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 4}">{escape(summary(found))}</text>',
    ]
    for k, (graph, boxes) in enumerate(zip(found.graphs, columns, strict=True)):
        x, y = _MARGIN + k * (_WIDTH + _GAP), 3 * _MARGIN
        lines.append(
            f'<text x="{x}" y="{y}" font-weight="bold">Graph {k}: {escape(graph.kind)}</text>'
        )
        y += _LINE - 4
        for i, (place, name, below) in enumerate(boxes):
            fill, stroke = _COLORS[place]
            if i:
                middle = x + _WIDTH // 2
                lines.append(
                    f'<path d="M{middle} {y - _GAP} V{y - 4} m-4 -5 l4 5 l4 -5" '
                    'fill="none" stroke="#6b7280"/>'
                )
            lines += [
                f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
                f'fill="{fill}" stroke="{stroke}"/>',
                f'<text x="{x + 10}" y="{y + 18}">{escape(_short(name))}</text>',
                f'<text x="{x + 10}" y="{y + 35}" fill="#6b7280" font-size="11">'
                f"{escape(_short(below))}</text>",
            ]
            y += _HEIGHT + _GAP
    return "\n".join([*lines, "</svg>"]) + "\n"


def _boxes(graph: GraphReport) -> Iterator[tuple[str, str, str]]:
    """Where a step runs, its name, and what is to be said of it."""
    for step in folded(graph.steps):
        if step.startswith("part "):
            part = graph.parts[int(step.removeprefix("part "))]
            cached = "in the cache" if part.cached else "to be compiled"
            yield "max", f"MAX: {several(part.operators, 'operator')}", cached
        elif step == "eager":
            yield "eager", f"eager: {several(graph.eager, 'operator')}", ""
        else:
            name = step.split(" ")[0]
            why = next((o.reason for o in graph.operators if o.name == name and o.reason), "")
            yield "eager", step, why


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _FIT else text[: _FIT - 1] + "…"
