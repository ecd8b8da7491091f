"""Functions of whole rows: what they are made for, and that they give the interpreter's numbers."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engines.steps.fused_cases import compile_programs
from torch_max_backend.engines.steps import row_pairs
from torch_max_backend.engines.steps.planner.plan import Memory, Place, Plan, ProgramStep
from torch_max_backend.engines.steps.program_libraries import prepare
from torch_max_backend.engines.steps.program_rows import encode
from torch_max_backend.engines.steps.programs import Instruction, Program
from torch_max_backend.engines.steps.rowwise import Rowwise

ADDED = Program(("float32", "float32"), (Instruction("add", "float32", (0, 1)),), (2,))
SUMMED = Program(
    ("float32", "float32"), (Instruction("mul", "float32", (0, 1)),), (), (("sum", 2),)
)


def _fused(program, sizes, inputs, outputs):
    prepare([program])
    return encode(program, sizes, inputs, outputs).fused


@pytest.mark.parametrize(
    ("sizes", "inputs", "is_rowwise"),
    [
        ((300, 400), [(400, 1), (0, 1)], True),
        ((300, 400), [(400, 1), (1, 0)], True),
        ((300, 400), [(800, 1), (400, 1)], True),
        # Few columns, which each block would have copies of.
        ((30, 20, 40), [(800, 40, 1), (40, 0, 1)], True),
        # Columns that do not lie one after the other, few columns, and what is all in its place.
        ((300, 400), [(1, 300), (400, 1)], False),
        ((3000, 40), [(40, 1), (0, 1)], False),
        ((300, 400), [(400, 1), (400, 1)], False),
    ],
)
def test_programs_of_rows(sizes, inputs, is_rowwise):
    dense = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
    fused = _fused(ADDED, sizes, inputs, [dense])
    assert isinstance(fused, Rowwise) == is_rowwise


def test_rows_that_are_cut_for_their_sums_are_the_interpreters():
    """It adds up parts of them, in another order."""
    short = _fused(SUMMED, (50, 700), [(700, 1), (700, 1)], [(1,)])
    long = _fused(SUMMED, (3, 700_000), [(700_000, 1), (700_000, 1)], [(1,)])
    assert isinstance(short, Rowwise)
    assert not isinstance(long, Rowwise)


def _plan(first: ProgramStep, second: ProgramStep) -> Plan:
    kinds = ["input", "input", "temporary", "output", "temporary"]
    memory = [Memory(kind, "float32", 120_000, i) for i, kind in enumerate(kinds)]
    return Plan([first, second], memory, [], {}, {}, [], [])


def _step(program: Program, inputs: list[Place], outputs: list[Place], reduced: int = 0):
    return ProgramStep(program, (300, 400), reduced, tuple(inputs), tuple(outputs))


def _all(memory: int, offset: int = 0) -> Place:
    return Place(memory, (300, 400), (400, 1), offset)


TOTAL, OF_ROW = Place(2, (300,), (1,)), Place(2, (300, 400), (1, 0))


def test_pairs_are_of_what_belongs_to_the_same_rows():
    sums = _step(SUMMED, [_all(0), _all(1)], [TOTAL], 1)
    assert row_pairs.pairs(_plan(sums, _step(ADDED, [_all(0), OF_ROW], [_all(3)]))) == {1: 0}
    # All totals, for each row; what the first step reads in other rows; an argument.
    others = Place(2, (300, 400), (0, 0), 7)
    assert not row_pairs.pairs(_plan(sums, _step(ADDED, [_all(0), others], [_all(3)])))
    moved = _step(SUMMED, [_all(4, 400), _all(1)], [TOTAL], 1)
    assert not row_pairs.pairs(_plan(moved, _step(ADDED, [_all(0), OF_ROW], [_all(4)])))
    assert not row_pairs.pairs(_plan(sums, _step(ADDED, [_all(0), OF_ROW], [_all(1)])))


def test_memory_of_a_pair_is_needed_for_as_long_as_both():
    memory = [Memory("temporary", "float32", 1, 0, *life) for life in [(0, 2), (3, 5), (2, 3)]]
    assert row_pairs.lives(memory, {3: 2}) == [(0, 3), (2, 5), (2, 3)]


def _softmax_gradient(g, y):
    return y * g - y * (y * g).sum(-1, keepdim=True)


def _scaled(g, y):
    largest = (g.abs() + y).amax(-1, keepdim=True)
    return g / largest, largest


def _affine(g, y):
    return torch.sigmoid(g * y[0] + y[:, :1]) - y[:, 1:2]


def _turned(g, y):
    x, angles = torch.view_as_complex(g), torch.view_as_complex(y[:, :, :1])
    return torch.view_as_real(x * angles)


def _of_positions(g, y):
    return (g * y[:, :, :1]).tanh() + y[:1, :, :1]


CASES = [
    (_softmax_gradient, (37, 300), torch.float32),
    (_softmax_gradient, (2, 3, 40, 257), torch.bfloat16),
    (_softmax_gradient, (64, 1024), torch.float64),
    (_scaled, (5, 2503), torch.float32),
    (_scaled, (64, 1024), torch.bfloat16),
    (_affine, (37, 300), torch.float32),
    (_affine, (64, 1027), torch.bfloat16),
    (_turned, (2, 21, 5, 17, 2), torch.float32),
    (_turned, (3, 700, 7, 32, 2), torch.float32),
    (_of_positions, (6, 40, 5, 33), torch.float32),
    (_of_positions, (3, 50, 70, 24), torch.bfloat16),
]


def _called(function, shape, dtype, fuse):
    torch.manual_seed(0)
    arguments = [torch.rand(shape).to(dtype) for _ in range(2)]
    torch._dynamo.reset()
    options = {"fuse": fuse, "min_ops": 1}
    compiled = torch.compile(function, backend="max", options=options, dynamic=False)
    return arguments, compiled(*arguments)


def fuse_programs():
    for case in CASES:
        _called(*case, True)


@pytest.mark.parametrize(("function", "shape", "dtype"), CASES)
def test_compiled_rows_give_the_interpreters_numbers(function, shape, dtype):
    compile_programs()
    arguments, interpreted = _called(function, shape, dtype, False)
    _, results = _called(function, shape, dtype, True)
    torch.testing.assert_close(results, interpreted, rtol=0, atol=0)
    loose = {"rtol": 2e-2, "atol": 1} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-4}
    torch.testing.assert_close(results, function(*arguments), **loose)
