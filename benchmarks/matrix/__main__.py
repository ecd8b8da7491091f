"""Runs many small models and writes down how well the backend takes each."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.matrix import CASES
from benchmarks.matrix.runner import PHASES, Results, run
from benchmarks.matrix.table import expectations, markdown


def in_turns(names: Sequence[str]) -> list[str]:
    """One model of each family, then the next of each: so that a run which ends early has seen all
    families."""
    known: Counter[str] = Counter()
    places = {}
    for name in names:
        places[name] = known[CASES[name].family]
        known[CASES[name].family] += 1
    return sorted(names, key=places.__getitem__)


def main() -> None:
    """The command line; see the top of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matrix",
        description=f"{__doc__} A run goes on where the last one stopped, and repeats what failed.",
        epilog=f"Models: {', '.join(CASES)}.",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these models, or families of them"
    )
    parser.add_argument("--out", type=Path, default=Path("matrix.jsonl"), help="the JSON lines")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument(
        "--expected", type=Path, metavar="FILE", help="write what the next run should find"
    )
    parser.add_argument("--explain", action="store_true", help="--phases explain: compile nothing")
    parser.add_argument(
        "--phases", nargs="*", choices=PHASES, default=list(PHASES), help="default: all"
    )
    parser.add_argument("--again", action="store_true", help="what the file knows already, too")
    parser.add_argument(
        "--caches",
        type=Path,
        metavar="DIR",
        help="keep compilers' caches there, for later runs",
    )
    parser.add_argument("--jobs", type=int, default=1, help="models at once")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of one phase")
    given = parser.parse_args()
    families = {case.family for case in CASES.values()}
    wanted = given.only or list(CASES)
    for word in wanted:
        if word not in CASES and word not in families:
            parser.error(f"no model and no family {word!r}")
    names = in_turns([n for n, case in CASES.items() if n in wanted or case.family in wanted])
    results = Results(given.out)
    phases = ["explain"] if given.explain else given.phases
    if phases:
        run(
            names,
            phases,
            results,
            jobs=given.jobs,
            limit=given.limit,
            minutes=given.minutes,
            again=given.again,
            caches=given.caches,
            tell=lambda line: print(line, flush=True),
        )
    if given.markdown:
        given.markdown.write_text(markdown(results))
    if given.expected:
        given.expected.write_text(json.dumps(expectations(results), indent=1) + "\n")


if __name__ == "__main__":
    main()
