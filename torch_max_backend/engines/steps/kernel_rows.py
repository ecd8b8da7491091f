"""Rows of kernels: what of them is the same for all sizes, and what sizes fill in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_max_backend.engines.steps.planner.plan import KernelStep, Place


@dataclass(frozen=True)
class KernelRow:
    """The row of a kernel.

    Attributes:
        words: Its words; 0 where an address or a size comes.
        places: The words that hold addresses, and of what.
        sizes: The words that hold sizes which are expressions, and these.
    """

    words: Sequence[int]
    places: Sequence[tuple[int, Place]]
    sizes: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, step: KernelStep, address: int) -> KernelRow:
        """That of a step whose kernel's shell has an address."""
        words: list[int] = [address, 0]
        places: list[tuple[int, Place]] = []
        sizes: list[tuple[int, str]] = []
        for place in (*step.outputs, *step.inputs):
            places.append((len(words), place))
            words.append(0)
            for size in (*place.shape, *place.strides):
                if isinstance(size, str):
                    sizes.append((len(words), size))
                    size = 0
                words.append(size)
        words[1] = len(words)
        return cls(words, places, sizes)
