"""When Python looks for garbage: objects that hold each other, and that nobody else holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
    # What somebody else has frozen stays so.
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
