"""Loggers, and what is printed on request of the environment."""

from __future__ import annotations

import logging
import sys


def get_logger(area: str) -> logging.Logger:
    """The logger ``torch_max_backend.<area>``; ``TORCH_LOGS="+torch_max_backend"`` shows it."""
    return logging.getLogger(f"torch_max_backend.{area}")


def say(text: str) -> None:
    """Write on stderr what the user asked for by an environment variable."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
