"""Rows of kernels: what of them is the same for all sizes, and what sizes fill in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_max_backend.engines.steps.planner.plan import KernelStep, Memory, itemsize

# The words of a row, and of each that holds an address the memory and the bytes from its start.
Words = Sequence[int]
Places = Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class KernelRow:
    """The row of a kernel.

    Attributes:
        words: Its words; 0 where an address or a size comes.
        places: The words that hold addresses.
        sizes: The words that hold sizes which are expressions, and these.
        offsets: The addresses whose distance from the start of their memory is an expression: the
            number among ``places``, the expression, and the bytes of an element.
    """

    words: Words
    places: Places
    sizes: Sequence[tuple[int, str]]
    offsets: Sequence[tuple[int, str, int]]

    @classmethod
    def of(cls, step: KernelStep, memory: Sequence[Memory], address: int) -> KernelRow:
        """That of a step whose kernel's shell has an address."""
        words: list[int] = [address, 0]
        places: list[tuple[int, int, int]] = []
        sizes: list[tuple[int, str]] = []
        offsets: list[tuple[int, str, int]] = []
        for place in (*step.outputs, *step.inputs):
            width, offset = itemsize(memory[place.memory].dtype), place.offset
            if isinstance(offset, str):
                offsets.append((len(places), offset, width))
                offset = 0
            places.append((len(words), place.memory, offset * width))
            words.append(0)
            for size in (*place.shape, *place.strides):
                if isinstance(size, str):
                    sizes.append((len(words), size))
                    size = 0
                words.append(size)
        words[1] = len(words)
        return cls(words, places, sizes, offsets)

    def filled(self, values: Mapping[str, int]) -> tuple[Words, Places]:
        """The words and addresses for given values of the expressions."""
        if not (self.sizes or self.offsets):
            return self.words, self.places
        words, places = [*self.words], [*self.places]
        for word, size in self.sizes:
            words[word] = values[size]
        for i, offset, width in self.offsets:
            word, number, _ = places[i]
            places[i] = word, number, values[offset] * width
        return words, places
