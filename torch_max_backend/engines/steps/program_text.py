"""Instructions of programs as Mojo text."""

from __future__ import annotations

from collections.abc import Sequence

from torch_max_backend.engines.steps.program_libraries import libraries_by_operation
from torch_max_backend.engines.steps.programs import Instruction, bits_of, operation


def assignment(
    name: str, instruction: Instruction, operands: Sequence[str], dtypes: Sequence[str]
) -> str:
    """The line that gives a variable the vector of an instruction's results.

    Args:
        name: The variable.
        instruction: What is computed.
        operands: The variables of its operands.
        dtypes: Of all values of the program.
    """
    dtype = f"DType.{instruction.dtype}"
    if instruction.name == "constant":
        bits = bits_of(instruction.constant, instruction.dtype)
        return f"var {name} = constant[{dtype}, w]({bits})"
    key = operation(dtypes, instruction)
    # What an operation of fewer operands is given besides, it ignores.
    made = [*operands, *[operands[0]] * (3 - len(operands))]
    call = f"{libraries_by_operation()[key].types[key]}.of[w]({', '.join(made)})"
    return f"var {name} = rounded[{dtype}]({call})"
