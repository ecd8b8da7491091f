"""The Mojo text of functions of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from torch_max_backend.engines.steps.program_text import assignment
from torch_max_backend.engines.steps.programs import dtypes_of, held, needed_values
from torch_max_backend.engines.steps.rowwise import Phase, Rowwise

IMPORTS = (
    "from kernels.core.accumulators import Accumulator, both, in_pairs",
    "from kernels.programs.reductions import BLOCK",
    "from kernels.programs.rowwise import address_of, everywhere, put_one, run_rows",
)
MODULES = ("core.accumulators", "programs.reductions", "programs.rowwise")
# Vectors of a row that are added up beside each other, as the interpreter does.
_BESIDE = 4


def symbol(rowwise: Rowwise) -> str:
    """The name of the exported function."""
    return "tmb_rows_" + hashlib.sha256(repr(rowwise).encode()).hexdigest()[:24]


def function(rowwise: Rowwise) -> Iterable[str]:
    """The function of rows, and the one that is called with rows of a table."""
    name = symbol(rowwise)
    dtypes = sorted(set().union(*(held(phase.program) for phase in rowwise.phases)))
    yield from ("", "", f'def _{name}(at: Words, steps: Words, rows: Int64, n: Int64) abi("C"):')
    yield f"    comptime w = vector[{', '.join(f'DType.{d}' for d in dtypes)}]()"
    yield "    var count = Int(n)"
    yield "    for row in range(rows):"
    counts = [len(p.program.inputs) for p in rowwise.phases]
    outputs = [len(p.program.outputs) for p in rowwise.phases]
    for k, phase in enumerate(rowwise.phases):
        first = sum(counts[:k]), sum(counts) + sum(outputs[:k]), sum(counts) + sum(outputs)
        for line in _Text(phase, k, *first).lines():
            yield "        " + line
    yield from ("", "", f'@export("{name}")')
    yield f'def {name}(row: Words, context: Words) abi("C") -> Int64:'
    yield from (f"    run_rows(row, _{name})", "    return 0")


def _address(operand: int) -> str:
    return f"address_of(at, steps, row, {operand})"


class _Text:
    """The text of a phase.

    Args:
        phase: The phase.
        number: Its number.
        inputs: The number of its first input among the operands.
        outputs: Of its first output.
        totals: Of its first reduction.
    """

    def __init__(self, phase: Phase, number: int, inputs: int, outputs: int, totals: int) -> None:
        self.phase, self.program, self.number = phase, phase.program, number
        self.dtypes = dtypes_of(phase.program)
        self.needed, self.uniform = needed_values(phase.program), phase.uniform()
        self.first = inputs, outputs, totals

    def _name(self, kind: str, value: int) -> str:
        return f"{kind}{self.number}_{value}"

    def lines(self) -> Iterable[str]:
        inputs, outputs, totals = self.first
        for i, dtype in enumerate(self.program.inputs):
            if i not in self.needed:
                continue
            yield f"var {self._name('p', i)} = {_address(inputs + i)}"
            if self.uniform[i]:
                name, place = self._name("v", i), self._name("p", i)
                yield f"var {name} = everywhere[DType.{dtype}, w]({place})"
        for i in range(len(self.program.outputs)):
            yield f"var {self._name('q', i)} = {_address(outputs + i)}"
        yield from self._instructions(True)
        yield f"var {self._name('j', 0)} = 0"
        if self.program.reductions:
            yield from self._reductions(totals)
        else:
            yield from self._plain()

    def _plain(self) -> Iterable[str]:
        j = self._name("j", 0)
        yield f"while {j} + w <= count:"
        for line in self._pass(j, "w"):
            yield "    " + line
        yield f"    {j} += w"
        yield f"if {j} < count:"
        for line in self._pass(j, f"count - {j}"):
            yield "    " + line

    def _reductions(self, totals: int) -> Iterable[str]:
        """In the order of `_row` of mojo_kernels/programs/reductions.mojo."""
        j, wide = self._name("j", 0), f"{_BESIDE} * w"
        kinds = [(k, kind, v) for k, (kind, v) in enumerate(self.program.reductions)]
        types = {
            k: f'Accumulator[wide[DType.{self.dtypes[v]}](), w, "{kind}"]' for k, kind, v in kinds
        }
        for k, _, _ in kinds:
            yield f"var {self._name('lanes', k)} = {types[k]}()"
        yield f"while {j} + {wide} <= count:"
        yield f"    var end = min(count, {j} + BLOCK * {wide})"
        for k, _, _ in kinds:
            beside = f"Array[{types[k]}, {_BESIDE}](fill={types[k]}())"
            yield f"    var {self._name('beside', k)} = {beside}"
        yield f"    while {j} + {wide} <= end:"
        yield f"        comptime for u in range({_BESIDE}):"
        yield f"            var at_u = {j} + u * w"
        for line in self._pass("at_u", "w"):
            yield "            " + line
        for k, _, v in kinds:
            yield f"            {self._name('beside', k)}[u].add({self._name('v', v)})"
        yield f"        {j} += {wide}"
        for k, _, _ in kinds:
            yield f"    {self._name('lanes', k)}.join(in_pairs({self._name('beside', k)}))"
        yield f"while {j} + w <= count:"
        for line in self._pass(j, "w"):
            yield "    " + line
        for k, _, v in kinds:
            yield f"    {self._name('lanes', k)}.add({self._name('v', v)})"
        yield f"    {j} += w"
        for k, _, _ in kinds:
            yield f"var {self._name('total', k)} = {self._name('lanes', k)}.value()"
        yield f"if {j} < count:"
        for line in self._pass(j, f"count - {j}"):
            yield "    " + line
        yield f"    for i in range(count - {j}):"
        for k, kind, v in kinds:
            total = self._name("total", k)
            yield f'        {total} = both["{kind}"]({total}, {self._name("v", v)}[i])'
        for k, _, v in kinds:
            place = _address(totals + k)
            yield f"put_one[DType.{self.dtypes[v]}]({place}, {self._name('total', k)})"

    def _pass(self, j: str, rest: str) -> Iterable[str]:
        """A vector of columns: loads, instructions, stores."""
        for i, dtype in enumerate(self.program.inputs):
            if i in self.needed and not self.uniform[i]:
                place = self._name("p", i)
                yield f"var {self._name('v', i)} = take[DType.{dtype}, w]({place}, {j}, {rest})"
        yield from self._instructions(False)
        for i, value in enumerate(self.program.outputs):
            given = f"{self._name('q', i)}, {j}, {self._name('v', value)}, {rest}"
            yield f"put[DType.{self.dtypes[value]}, w]({given})"

    def _instructions(self, uniform: bool) -> Iterable[str]:
        """Those whose results are the same in all columns, or the others."""
        inputs = len(self.program.inputs)
        for k, instruction in enumerate(self.program.instructions):
            value = inputs + k
            if value in self.needed and self.uniform[value] == uniform:
                operands = [self._name("v", o) for o in instruction.operands]
                yield assignment(self._name("v", value), instruction, operands, self.dtypes)
