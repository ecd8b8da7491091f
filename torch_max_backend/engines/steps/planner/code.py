"""The instructions of a program, as its tasks are put together."""

from __future__ import annotations

from typing import Any

from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.tasks import Number
from torch_max_backend.engines.steps.planner.views import View
from torch_max_backend.engines.steps.programs import Instruction


class Code:
    """The instructions of a program.

    Attributes:
        instructions: Those so far. Their values are numbered behind the inputs.
        made: The values of temporaries that the program has made.
    """

    def __init__(self, inputs: list[View]) -> None:
        self.instructions: list[Instruction] = []
        self.made: dict[Value, int] = {}
        self._inputs = {key(view): i for i, view in enumerate(inputs)}
        self._constants: dict[tuple[str, str], int] = {}

    def add(self, instruction: Instruction) -> int:
        """Append an instruction; returns the number of its value."""
        self.instructions.append(instruction)
        return len(self._inputs) + len(self.instructions) - 1

    def operand(self, read: View | Number) -> int:
        """The value that a task reads."""
        if isinstance(read, Number):
            return self._constant(read)
        if read.root in self.made:
            return self.made[read.root]
        return self._inputs[key(read)]

    def _constant(self, number: Number) -> int:
        key = (repr(number.value), number.dtype)
        if key not in self._constants:
            instruction = Instruction("constant", number.dtype, (), number.value)
            self._constants[key] = self.add(instruction)
        return self._constants[key]


def key(view: View) -> Any:
    """Equal for views of the same elements."""
    return view.root, view.offset, view.strides
