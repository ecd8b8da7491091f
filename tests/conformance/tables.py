"""All rows of the conformance tables."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from tests.conformance import families
from tests.conformance.entry import Entry


def _rows() -> Iterator[Entry]:
    for module in pkgutil.iter_modules(families.__path__):
        yield from importlib.import_module(f"{families.__name__}.{module.name}").ENTRIES


ENTRIES = list(_rows())

# Parts of the rows, of which each is compiled as one module where all of them are compiled.
SHARES = 16


def share(k: int) -> list[Entry]:
    """One of ``SHARES`` parts of the rows."""
    return ENTRIES[k::SHARES]
