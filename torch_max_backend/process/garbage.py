"""When Python looks for garbage: objects that hold each other, and that nobody else holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Whether somebody else was found to use ``gc.freeze`` in this process.
_others_freeze = False


@contextmanager
def collected_later() -> Iterator[None]:
    """No collection in the body."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def count_as_old() -> None:
    """Have all objects count as old, as after a collection of all, which takes a quarter of a
    second where a model is compiled. What is garbage among them waits for the next one of all."""
    global _others_freeze
    # What somebody else has frozen stays so. Python counts it one by one: 30 ms for a million.
    _others_freeze = _others_freeze or gc.get_freeze_count() > 0
    if not _others_freeze:
        gc.freeze()
        gc.unfreeze()
