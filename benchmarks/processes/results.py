"""Figures beside the benchmarks: ``NAME.json``, by processor, and the tables of ``NAME.md``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.processes.machine import machine

HERE = Path(__file__).resolve().parents[1]
_MARK = "<!-- tables -->"


def write_page(name: str, sections: Iterable[str]) -> None:
    """Put tables under the line of a page; what is above it stays."""
    page = HERE / f"{name}.md"
    head = page.read_text().partition(_MARK)[0]
    page.write_text(f"{head}{_MARK}\n\n" + "\n".join(sections))


def heading(known: Mapping[str, Any], more: str = "") -> list[str]:
    """The first lines of a processor's tables: it, its cores, the versions, what else is said."""
    versions = ", ".join(f"{k} {v}" for k, v in known["versions"].items())
    return [f"## {known['cpu']}", "", f"{known['cores']} cores; {versions}{more}.", ""]


class Results:
    """Those of one benchmark; ``here`` are this processor's, to be changed in place."""

    def __init__(self, name: str, *packages: str) -> None:
        self._name, self._path = name, HERE / f"{name}.json"
        self._all: dict[str, Any] = (
            json.loads(self._path.read_text()) if self._path.exists() else {}
        )
        known = machine(*packages)
        self.here: dict[str, Any] = self._all.setdefault(known["cpu"], {})
        self.here["machine"] = known

    def keep(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(self._all, indent=1) + "\n")

    def publish(self, tables: Callable[[Any], str]) -> None:
        """Write the file and the page: ``tables`` makes Markdown of a processor's results."""
        self.keep()
        write_page(self._name, map(tables, self._all.values()))
