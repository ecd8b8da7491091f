"""What is measured, as the command line says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MODES = ("inference", "training", "generate")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Spec:
    """A measurement.

    Attributes:
        model: A file and a function, a local folder, or a name (``models.py``).
        batch: Items of a call.
        length: Tokens of an item, for models of tokens.
        dtype: Of weights and arguments, one of ``DTYPES``.
        mode: One of ``MODES``.
        device: Where it runs: ``"cpu"`` or ``"cuda"``.
        threads: How many threads a framework may use; 0 leaves that to it.
        new_tokens: Tokens that ``generate`` makes of each item.
        seconds: How long calls are timed in each process.
    """

    model: str
    batch: int = 1
    length: int = 128
    dtype: str = "float32"
    mode: str = "inference"
    device: str = "cpu"
    threads: int = 0
    new_tokens: int = 32
    seconds: float = 5.0

    def plain(self) -> Mapping[str, Any]:
        """As what JSON can hold."""
        return asdict(self)
