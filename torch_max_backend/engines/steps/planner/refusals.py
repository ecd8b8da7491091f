"""Why a graph has no plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NotPlanned(Exception):
    """Something that no table of steps can hold.

    Attributes:
        reason: What it is.
        origin: The FX node whose lowering built it, if that is known.
        all: Node and reason of everything that stands in the way.
    """

    def __init__(
        self, reason: str, origin: Any = None, others: Sequence[tuple[Any, str]] = ()
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.origin = origin
        self._others = others

    @property
    def all(self) -> list[tuple[Any, str]]:
        return list(self._others) or [(self.origin, self.reason)]
