"""Programs as compiled code: built in the background at the lowest priority, and swapped in.

A fused function takes the same row as the interpreter, so that the first word of the row, its
address, is all that changes: a call that is running takes either. Libraries are kept by content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from torch_max_backend.engines.steps.fused_source import Fusible, fused_symbol, fused_text
from torch_max_backend.engines.steps.libraries import exported, kept
from torch_max_backend.engines.steps.rowwise import Rowwise
from torch_max_backend.errors import CompilationError
from torch_max_backend.log import get_logger
from torch_max_backend.process.background_threads import BackgroundThread, at_exit

log = get_logger("steps")

# Programs of tiles with fewer instructions gain nothing that would be worth a library.
LEAST = 2

thread = BackgroundThread("fusion", niceness=19)
_addresses: dict[Fusible, int] = {}
_refused: set[Fusible] = set()


def address(program: Fusible | None) -> int:
    """The address of the fused function of a program, 0 while there is none."""
    return 0 if program is None else _addresses.get(program, 0)


def build(programs: Iterable[Fusible | None]) -> None:
    """Build and load the fused functions of programs; what cannot be built stays interpreted."""
    wanted = _wanted(programs)
    if not wanted:
        return
    try:
        found = exported(fused_text(wanted))
    except CompilationError as e:
        if at_exit():
            return
        log.warning("Programs stay interpreted: %s", e)
        _refused.update(wanted)
        return
    _addresses.update((p, found[fused_symbol(p)]) for p in wanted)


def build_later(programs: Iterable[Fusible | None], then: Callable[[], None]) -> None:
    """The same, by a thread; ``then`` is called when it is done, at once if nothing has to be
    compiled."""
    wanted = _wanted(programs)
    if not wanted:
        return
    if kept(fused_text(wanted)):
        build(wanted)
        then()
        return
    thread.later(partial(_build_and, tuple(wanted), then))


def _build_and(programs: Iterable[Fusible], then: Callable[[], None]) -> None:
    build(programs)
    then()


def _wanted(programs: Iterable[Fusible | None]) -> list[Fusible]:
    return [
        p
        for p in dict.fromkeys(programs)
        if p is not None
        and p not in _addresses
        and p not in _refused
        and (isinstance(p, Rowwise) or sum(i.name != "constant" for i in p.instructions) >= LEAST)
    ]
