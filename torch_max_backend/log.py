"""Loggers, and what is printed on request of the environment."""

from __future__ import annotations

import logging
import sys


def get_logger(area: str) -> logging.Logger:
    """The logger ``torch_max_backend.<area>``; ``TORCH_LOGS="+torch_max_backend"`` shows it."""
    return logging.getLogger(f"torch_max_backend.{area}")


def several(number: int, noun: str, plural: str = "") -> str:
    """A number of things: ``"1 step"``, ``"2 steps"``; ``plural`` where it is not made by an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def say(text: str) -> None:
    """Write on stderr what the user asked for by an environment variable."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
