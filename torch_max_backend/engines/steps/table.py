"""Tables: the rows of a plan in memory, with the addresses of everything that stays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from torch_max_backend.engines.steps.arena import ALIGNMENT
from torch_max_backend.engines.steps.runner import PAUSED, block_runner, runner
from torch_max_backend.engines.steps.sized import Sized
from torch_max_backend.runtime import large

# Bytes of an error of a kernel.
_TEXT = 2048


class Table:
    """The rows of a plan in memory, for one call at a time.

    Args:
        sized: The plan for given sizes.

    Attributes:
        words: All words, then what the loop over the rows takes and what kernels tell of errors.
        inputs: For each input of the plan the words that hold an address in it.
        outputs: For each result the same.
        block: Where what the loop over the rows takes lies.
        known: The addresses of inputs that rarely move, as they are in the table, then the versions
            of packed ones.
        copies: Dense copies that stand in for inputs.
        numbers: Numbers that do.
    """

    def __init__(self, sized: Sized) -> None:
        self.sized = sized
        self.inputs, self.outputs = sized.addresses.inputs, sized.addresses.outputs
        count = len(sized.words)
        # The loop takes where the rows are, how many, and the context; that is where an error's
        # text goes, how long it may be, how long it is, and two words of the loop's own.
        block, context, text = count, count + 3, count + 8
        self._memory = torch.empty(text + _TEXT // 8, dtype=torch.int64, device="cpu")
        start = self._memory.data_ptr()
        of_words: Any = ctypes.c_int64 * text
        self.words = of_words.from_address(start)
        ctypes.memmove(start, sized.words.buffer_info()[0], 8 * count)
        self.block = start + 8 * block
        self._length = context + 2
        self._text = start + 8 * text
        self.words[block:context] = [start, len(sized.starts), start + 8 * context]
        self.words[context:text] = [self._text, _TEXT, 0, 0, 0]
        self._arena: torch.Tensor | None = None
        self._start = 0
        if not sized.shares:
            self._arena = torch.empty(sized.arena + ALIGNMENT, dtype=torch.uint8, device="cpu")
            self._place(self._arena.data_ptr())
        self.known: list[int] = []
        self.copies: dict[int, torch.Tensor] = {}
        self.numbers: dict[int, Any] = {}
        sized.add(self)

    def enter(self) -> torch.Tensor:
        """Memory for the temporaries of one call, to be held until that ends; for tables whose
        ``sized.shares``."""
        arena = large.temporary(self.sized.arena + ALIGNMENT)
        self._place(arena.data_ptr())
        return arena

    def _place(self, start: int) -> None:
        start += -start % ALIGNMENT
        if start != self._start:
            self._start = start
            words = self.words
            for word, offset in self.sized.temporaries:
                words[word] = start + offset

    def run(self, ticks: torch.Tensor | None = None) -> int:
        """Run all rows; -1, or the number of the row that failed.

        Args:
            ticks: Where the nanoseconds of each row are to be stored.
        """
        if ticks is None:
            run: Callable[..., int] = block_runner()
            taken = [self.block]
        else:
            run = runner(timed=True)
            taken = [*self.words[self._length - 5 : self._length - 2], ticks.data_ptr()]
        failed = PAUSED
        while failed == PAUSED:
            failed = run(*taken)
        return failed

    def error(self) -> str:
        """What a kernel told of an error."""
        text = ctypes.string_at(self._text, self.words[self._length])
        return text.decode(errors="replace")
