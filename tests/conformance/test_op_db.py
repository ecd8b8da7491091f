"""Every operator with a lowering, against eager PyTorch on torch's own samples.

A group of operators is traced and planned together; each test then runs its own operator.
``test_by_max.py`` has MAX compile a share. Add an operator by a row in ``families/``.
``pytest --all-samples`` runs every dtype and sample of the tables, which takes an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from tests.conformance.entry import Entry
from tests.conformance.tables import ENTRIES
from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program


def _groups() -> dict[str, list[Entry]]:
    """Rows by the group they are planned in: a new row changes one group."""
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(ENTRIES, key=_number):
        groups.setdefault(f"rows{_number(entry) % _COUNT}", []).append(entry)
    return groups


def _number(entry: Entry) -> int:
    """A number of its own for each row, whatever rows there are beside it."""
    return crc32(entry.name.encode())


# Large groups spread the fixed cost of building kernels, small ones spread over workers.
_COUNT = 4
_GROUPS = _groups()


def samples(entry: Entry, full: bool) -> Iterator[Program]:
    """The samples of a row. ``full``: each dtype, each sample. Otherwise one in float32 (or the
    row's first dtype), static or dynamic, and for one row in ten one of its other dtypes: which is
    decided by the name, so that a new row changes no other's."""
    from tests.conformance.samples import OPS, programs

    main, *others = [d for d in entry.dtypes if d in OPS[entry.name].dtypes]
    static = list(programs(entry.name, main, limit=entry.samples))
    dynamic = list(programs(entry.name, main, limit=entry.samples, dynamic=True))
    turn = _number(entry)
    if full:
        yield from static + dynamic
        chosen = others
    else:
        yield dynamic[0] if dynamic and turn & 256 else static[-1]
        chosen = others[turn % len(others) :][:1] if others and turn % 10 == 0 else []
    for i, dtype in enumerate(chosen):
        yield from programs(entry.name, dtype, limit=1, dynamic=bool((turn + i) & 1))


# One group at a time: its models take up to a gigabyte.
@lru_cache(maxsize=1)
def _compiled(group: str, full: bool) -> dict[str, list[Program]]:
    """The programs of a group by operator, compiled."""
    from tests.conformance.together import compile_together

    by_name = {entry.name: list(samples(entry, full)) for entry in _GROUPS[group]}
    compile_together([p for found in by_name.values() for p in found])
    return by_name


@pytest.mark.parametrize(
    ("group", "entry"),
    [
        pytest.param(group, entry, id=entry.name, marks=compile_group(group, 0.06 * len(entries)))
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

    names = [e.name for e in ENTRIES]
    assert not set(names) - OPS.keys()
    assert len(names) == len(set(names)), "an operator has two rows"


@pytest.mark.thorough
def test_every_lowering_is_reached() -> None:
    """Each lowering stands in the trace of some row's samples, or ``ELSEWHERE`` names its test."""
    from tests.conformance.coverage import uncovered

    missing = uncovered(ENTRIES)
    assert not missing, f"no row reaches: {sorted(missing)}"
