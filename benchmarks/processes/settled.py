"""Waiting until this package does nothing in the background: what it compiles, or moves to huge
pages, takes time from the calls that are measured."""

from __future__ import annotations

import threading

# Seconds for each thread.
_PATIENCE = 120


def settle() -> None:
    """Wait for the package's threads."""
    for thread in threading.enumerate():
        if thread.name.startswith("torch_max_backend"):
            thread.join(_PATIENCE)
