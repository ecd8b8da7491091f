"""Every operator with a lowering, against eager PyTorch on torch's own samples.

A group of operators is traced, converted and compiled as one MAX module; each test then runs its
own operator. Add an operator by a row in ``families/``. ``pytest --all-samples`` runs every dtype
and sample of the tables, which takes an hour.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest

from tests.conformance import families
from tests.conformance.entry import Entry
from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

# Rows that share a compile: large modules spread its fixed cost, small ones spread over workers.
_ROWS_A_MODULE = 120


def _rows() -> Iterator[Entry]:
    for module in pkgutil.iter_modules(families.__path__):
        yield from importlib.import_module(f"{families.__name__}.{module.name}").ENTRIES


_ENTRIES = list(_rows())
_GROUPS = {
    f"rows{i}": _ENTRIES[start : start + _ROWS_A_MODULE]
    for i, start in enumerate(range(0, len(_ENTRIES), _ROWS_A_MODULE))
}


def _programs(entry: Entry, full: bool) -> Iterator[Program]:
    """The samples of a row. ``full``: each dtype, each sample. Otherwise one in float32 (or the
    row's first dtype), static and dynamic by turns, and every tenth row one of its other dtypes."""
    from tests.conformance.samples import OPS, programs

    main, *others = [d for d in entry.dtypes if d in OPS[entry.name].dtypes]
    static = list(programs(entry.name, main, limit=entry.samples))
    dynamic = list(programs(entry.name, main, limit=entry.samples, dynamic=True))
    turn = _ENTRIES.index(entry)
    if full:
        yield from static + dynamic
        chosen = others
    else:
        yield dynamic[0] if dynamic and turn % 2 else static[-1]
        chosen = others[turn % len(others) :][:1] if others and turn % 10 == 0 else []
    for i, dtype in enumerate(chosen, start=turn):
        yield from programs(entry.name, dtype, limit=1, dynamic=i % 2 == 1)


# One group at a time: its models take up to a gigabyte.
@lru_cache(maxsize=1)
def _compiled(group: str, full: bool) -> dict[str, list[Program]]:
    """The programs of a group by operator, compiled."""
    from tests.conformance.together import compile_together

    by_name = {entry.name: list(_programs(entry, full)) for entry in _GROUPS[group]}
    compile_together([p for found in by_name.values() for p in found])
    return by_name


@pytest.mark.parametrize(
    ("group", "entry"),
    [
        pytest.param(group, entry, id=entry.name, marks=compile_group(group, len(entries)))
        for group, entries in _GROUPS.items()
        for entry in entries
    ],
)
def test_agrees_with_eager(group: str, entry: Entry, request: pytest.FixtureRequest) -> None:
    from tests.conformance.reference import complaint
    from torch_max_backend import UnsupportedOperatorError

    programs = _compiled(group, request.config.getoption("--all-samples"))[entry.name]
    assert programs, f"torch has no samples of {entry.name} for {entry.dtypes}"
    failures = []
    for program in programs:
        refused = any(program.name.startswith(prefix) for prefix in entry.refused)
        if isinstance(program.error, UnsupportedOperatorError) and refused:
            continue
        if refused:
            failures.append(f"{program.name} is listed as refused but was not")
            continue
        found = complaint(program)
        if found:
            failures.append(f"{program.name}: {found}")
    repeat = f"python -m tests.conformance {entry.name} --dtypes float32"
    assert not failures, "\n\n".join([*failures, f"Repeat with: {repeat}"])


def test_every_row_names_a_known_operator() -> None:
    from tests.conformance.samples import OPS

    names = [e.name for e in _ENTRIES]
    assert not set(names) - OPS.keys()
    assert len(names) == len(set(names)), "an operator has two rows"


@pytest.mark.thorough
def test_every_lowering_is_reached() -> None:
    """Each lowering stands in the trace of some row's samples, or ``ELSEWHERE`` names its test."""
    from tests.conformance.coverage import uncovered

    missing = uncovered(_ENTRIES)
    assert not missing, f"no row reaches: {sorted(missing)}"
