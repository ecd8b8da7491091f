"""Compile every architecture of transformers, timm and torchvision, and some of diffusers and of
further packages, as a small model, and compare.

    uv run python -m benchmarks.sweep                     # about two hours on 2 cores
    uv run python -m benchmarks.sweep --only timm --minutes 20
    uv run python -m benchmarks.sweep --training          # about two hours
    uv run python -m benchmarks.sweep --sizes             # about two hours
    uv run python -m benchmarks.sweep --bfloat16          # about two hours

Each model has random weights, is called in eager PyTorch and compiled for steps, twice; what has no
step is left to torch and counted. A run goes on where the last one stopped: results are lines of
``benchmarks/sweep.jsonl``, and the table is ``benchmarks/sweep.md``. ``--training`` compares
gradients, ``--sizes`` calls what is compiled once with sizes that change, and ``--bfloat16``
rounds weights and inputs; theirs are ``sweep-training.jsonl`` and ``.md``, and so on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes.results import HERE, write_page
from benchmarks.sweep.catalog import names
from benchmarks.sweep.table import markdown

_PARTS = {"training": "gradients", "sizes": "sizes change", "bfloat16": "in bfloat16"}
# Models of a process: a new one starts with memory that nobody has used.
_TOGETHER = 12


def known(file: Path) -> dict[str, dict[str, Any]]:
    """The results of a file, the last of each architecture."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {found["name"]: found for found in map(json.loads, lines)}


def examined(wanted: Sequence[str], how: str) -> Iterator[dict[str, Any]]:
    """The results of architectures, from processes of several; one that a process ends at has
    crashed. ``how``: a key of ``PARTS`` of ``benchmarks.sweep.one``."""
    waiting = list(wanted)
    while waiting:
        command = [sys.executable, "-m", "benchmarks.sweep.one", how, *waiting[:_TOGETHER]]
        begun = ""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                found = json.loads(line)
                begun = found.get("begins", "")
                if not begun:
                    waiting.remove(found["name"])
                    yield found
        if begun:
            waiting.remove(begun)
            yield {
                "name": begun,
                "right": False,
                "error": f"the process ended: {process.returncode}",
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sweep", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--only", nargs="+", metavar="PREFIX", help="names that begin so")
    parser.add_argument("--again", action="store_true", help="what is known already, too")
    parser.add_argument("--failed", action="store_true", help="what went wrong, once more")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after")
    part = parser.add_mutually_exclusive_group()
    for name, what in _PARTS.items():
        part.add_argument(f"--{name}", dest="part", action="store_const", const=name, help=what)
    parser.add_argument("--out", type=Path, help="where results are kept")
    given = parser.parse_args()
    page = f"sweep-{given.part}" if given.part else "sweep"
    given.out = given.out or HERE / f"{page}.jsonl"
    results = known(given.out)
    wanted = [n for n in names() if not given.only or n.startswith(tuple(given.only))]
    if given.failed:
        wanted = [n for n in wanted if n in results and results[n].get("right") is False]
    elif not given.again:
        wanted = [n for n in wanted if n not in results]
    end = time.monotonic() + 60 * given.minutes
    for found in examined(wanted, given.part or "inference"):
        results[found["name"]] = found
        with given.out.open("a") as file:
            file.write(json.dumps(found) + "\n")
        said = found.get("skipped") or found.get("error") or found.get("wrong") or "right"
        print(f"{found['name']}: {said}", flush=True)
        if time.monotonic() > end:
            break
    given.out.write_text("".join(json.dumps(results[n]) + "\n" for n in sorted(results)))
    write_page(page, [markdown(list(results.values()))])


if __name__ == "__main__":
    main()
