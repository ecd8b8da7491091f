"""Element-wise programs beside torch's operators: operations, dtypes, strides, reductions."""

from __future__ import annotations

import math
import random

import pytest
import torch

from tests.engines.steps.fused_cases import compile_programs
from tests.engines.steps.program_cases import Guarded, assert_close, execute, expected, filled, run
from torch_max_backend.engines.steps import fused, program_libraries
from torch_max_backend.engines.steps.fused_source import fused_symbol, fused_text
from torch_max_backend.engines.steps.program_libraries import prepare
from torch_max_backend.engines.steps.program_rows import encode
from torch_max_backend.engines.steps.programs import UNSIGNED, Instruction, Program
from torch_max_backend.errors import LibraryError

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
# Exact, but for operations that are no single instruction.
_EXACT = frozenset(
    {*program_libraries.CHEAP, "mod", "fmod", "next", "left", "right", "gcd", "lcm", "mantissa"}
) - {"sqrt", "rsqrt"}
# Where torch's own give NaN for numbers beyond the range of a quotient, or at infinities.
_FINITE = ("gelu", "sinc", "mod", "fmod", "floor_div")


@pytest.fixture(autouse=True, params=[1, 2], ids=["one-thread", "two-threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def _operations(dtypes):
    for key in program_libraries.libraries_by_operation():
        # Of unsigned integers torch has few operations: ``tests/ops/test_integers.py``.
        if not key[0].startswith("reduce_") and key[2] in dtypes and key[1] not in UNSIGNED:
            yield key


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_each_operation_gives_what_torchs_gives(dtype):
    sizes = (1371,)
    wrong = []
    for name, to, *operands in [*_operations({dtype}), ("select", dtype, "bool", dtype, dtype)]:
        try:
            _check_one(name, to, operands, sizes)
        except AssertionError as e:
            wrong.append(str(e))
    assert not wrong, "\n".join(wrong)


def _check_one(name, to, operands, sizes):
    kinds = [getattr(torch, d) for d in operands]
    division = name in ("mod", "floor_div", "fmod", "gcd", "lcm", "left", "right", "pow")
    integers = not kinds[0].is_floating_point
    special = not (division and integers) and name not in _FINITE
    small = division or name.startswith("gelu")
    inputs = [filled(d, sizes, i, special, small) for i, d in enumerate(kinds)]
    if division and integers:
        if name in ("mod", "floor_div"):
            inputs[1][inputs[1] == 0] = 3
        if name in ("pow", "left", "right"):
            inputs[1] = inputs[1].abs() % 6
    if (
        name == "cast"
        and not integers
        and to != "bool"
        and not getattr(torch, to).is_floating_point
    ):
        # Out of range C leaves the result open; torch's own varies with the position.
        limit = 120 if to != "uint8" else 250
        inputs[0] = inputs[0].nan_to_num(0, 7, -7).clamp(0 if to == "uint8" else -limit, limit)
    program = Program(
        tuple(operands), (Instruction(name, to, tuple(range(len(operands)))),), (len(operands),)
    )
    if kinds[0].is_floating_point and name not in _EXACT:
        # Torch's own are less exact, and some NaN at infinities.
        wide = Program(
            ("float64",) * len(operands),
            (Instruction(name, "float64", tuple(range(len(operands)))),),
            (len(operands),),
        )
        wanted = expected(wide, sizes, [x.double() for x in inputs])[0].to(getattr(torch, to))
    else:
        wanted = expected(program, sizes, inputs)[0]
    guarded = Guarded()
    out = guarded.empty(sizes, getattr(torch, to))
    run(program, sizes, inputs, [out])
    guarded.check()
    try:
        exact = name in _EXACT or integers
        assert_close(out, wanted, exact)
        if exact and out.dtype.is_floating_point and name not in ("max", "min"):
            kept = ~wanted.isnan()
            assert torch.equal(out.signbit()[kept], wanted.signbit()[kept])
    except AssertionError as e:
        places = [
            x[(out != wanted) & ~(out.isnan() & wanted.isnan())][:6] for x in (*inputs, out, wanted)
        ]
        raise AssertionError(f"{name} {to} {operands}: {places}\n{e}") from None


def test_gelu_is_as_near_as_float32_allows():
    ends = [math.nan, math.inf, -math.inf, 1e30, -1e30]
    x = torch.cat([torch.linspace(-15, 15, 100_001), torch.tensor(ends)])
    program = Program(("float32",), (Instruction("gelu", "float32", (0,)),), (1,))
    out = torch.empty_like(x)
    run(program, x.shape, [x], [out])
    exact = torch.nn.functional.gelu(x.double())
    torch.testing.assert_close(out[-5:], exact[-5:].float(), equal_nan=True)
    out, exact, x = out[:-5], exact[:-5], x[:-5]
    # The probability within two roundings of 1; of numbers far below 0 it is exactly 0.
    assert ((out - exact).abs() <= 1.2e-7 * x.abs()).all()
    assert (out[x < -13] == 0).all()


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_two_signs_are_two_programs(order):
    for constant in order:
        program = _times(constant)
        x, y = torch.ones(8, 8), torch.empty(8, 8)
        run(program, (8, 8), [x], [y])
        assert (torch.signbit(y) == (math.copysign(1, constant) < 0)).all()


def test_programs_with_nan_are_equal():
    first, second = _times(float("nan")), _times(float("nan"))
    assert first == second
    text = fused_text([first, second]).text
    assert text.count(f'@export("{fused_symbol(first)}")') == 1


def _times(constant):
    instructions = (
        Instruction("constant", "float32", (), constant),
        Instruction("mul", "float32", (0, 1)),
    )
    return Program(("float32",), instructions, (2,))


def test_an_unknown_operation_is_refused():
    program = Program(("bool",), (Instruction("exp", "bool", (0,)),), (1,))
    assert program_libraries.unsupported(program)
    with pytest.raises(LibraryError, match="exp of bool"):
        prepare([program])


def _random_program(rng, dtypes):
    """A program of float32, int64 and bool values."""
    kinds = [rng.choice(dtypes) for _ in range(rng.randint(1, 4))]
    types = list(kinds)
    instructions = []
    for _ in range(rng.randint(0, 12)):
        of = {d: [i for i, t in enumerate(types) if t == d] for d in (*dtypes, "bool")}
        dtype = rng.choice([d for d in dtypes if of[d]])
        a, b = rng.choice(of[dtype]), rng.choice(of[dtype])
        pick = rng.randint(0, 7)
        if pick == 0:
            instructions.append(Instruction("constant", dtype, (), rng.choice([0, 1, 3, -2])))
        elif pick == 1:
            instructions.append(Instruction(rng.choice(["greater", "equal"]), "bool", (a, b)))
        elif pick == 2 and of["bool"]:
            instructions.append(Instruction("select", dtype, (rng.choice(of["bool"]), a, b)))
        elif pick == 3:
            to = rng.choice([d for d in dtypes if d != dtype] or ["bool"])
            instructions.append(Instruction("cast", to, (a,)))
        elif pick == 4:
            instructions.append(Instruction(rng.choice(["negative", "abs"]), dtype, (a,)))
        else:
            name = rng.choice(["add", "sub", "mul", "max", "min"])
            instructions.append(Instruction(name, dtype, (a, b)))
        types.append(instructions[-1].dtype)
    outputs = tuple(rng.choice(range(len(types))) for _ in range(rng.randint(1, 3)))
    return Program(tuple(kinds), tuple(instructions), outputs), types


def _random_input(rng, sizes, dtype, seed):
    """A tensor as large as a space, of any strides: broadcast, transposed, cut, backwards."""
    shape = [1 if rng.random() < 0.25 else n for n in sizes]
    order = list(range(len(sizes)))
    if rng.random() < 0.5:
        rng.shuffle(order)
    wide = [n * (2 if rng.random() < 0.15 else 1) for n in shape]
    base = filled(dtype, [wide[i] for i in order], seed, special=False, small=True)
    back = [order.index(i) for i in range(len(sizes))]
    x = base.permute(back)
    for i, (n, w) in enumerate(zip(shape, wide, strict=True)):
        if w != n:
            x = (
                x.narrow(i, rng.choice([0, n]), n)
                if rng.random() < 0.5
                else x.select(i, 0).unsqueeze(i).expand([*x.shape[:i], n, *x.shape[i + 1 :]])
                if n == 1
                else x[(slice(None),) * i + (slice(0, 2 * n, 2),)]
            )
    return x.expand(sizes)


_SPACES = [
    (), (1,), (7,), (64,), (1000,), (5000,), (70001,), (3, 5), (40, 1), (33, 64), (17, 1500),
    (300, 3), (2, 3, 4), (5, 40, 33), (64, 2, 30), (9, 1, 70), (2, 3, 4, 5), (3, 2, 2, 2, 3, 2),
    (2,) * 8, (0,), (4, 0, 3), (130, 131), (4, 700, 90),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_give_what_torchs_operators_give(seed):
    rng = random.Random(seed)
    for number in range(4):
        dtypes = rng.choice([["float32"], ["float32", "int64"], ["float64", "int32"], ["bfloat16"]])
        program, types = _random_program(rng, dtypes)
        sizes = rng.choice(_SPACES)
        inputs = [
            _random_input(rng, sizes, getattr(torch, d), seed * 100 + i)
            for i, d in enumerate(program.inputs)
        ]
        wanted = expected(program, sizes, inputs)
        guarded = Guarded()
        outputs = []
        for value in program.outputs:
            order = list(range(len(sizes)))
            if rng.random() < 0.4:
                rng.shuffle(order)
            outputs.append(
                guarded.empty(sizes, getattr(torch, types[value]), order, rng.random() < 0.2)
            )
        run(program, sizes, inputs, outputs, apart=rng.random() < 0.5)
        guarded.check()
        for out, want in zip(outputs, wanted, strict=True):
            same = (out == want) | (out.isnan() & want.isnan())
            assert same.all(), f"{number} {program} {sizes} {[x.stride() for x in inputs]}"


def _interpreted():
    """Rows of programs that can be compiled, their inputs, the interpreter's results and memory for
    others."""
    rng = random.Random(1)
    cases = []
    names = (("mul", (0, 1)), ("exp", (2,)), ("add", (3, 0)), ("sigmoid", (4,)))
    instructions = tuple(Instruction(name, "float32", values) for name, values in names)
    reductions = (("sum", 4), ("max", 1))
    activation = Program(("float32", "float32"), instructions, (5, 3), reductions)
    for number in range(24):
        dtypes = rng.choice([["float32"], ["float32", "int64"], ["bfloat16", "float32"]])
        program, types = _random_program(rng, dtypes)
        sizes = rng.choice([(7,), (70001,), (33, 64), (300, 3), (5, 40, 33), (130, 131)])
        if number % 6 == 0:
            program, types, sizes = activation, ["float32"] * 6, rng.choice([(3000,), (40, 300)])
        inputs = [
            _random_input(rng, sizes, getattr(torch, d), number * 100 + k)
            for k, d in enumerate(program.inputs)
        ]
        made = [
            [torch.zeros(sizes, dtype=getattr(torch, types[v])) for v in program.outputs]
            + [torch.zeros(sizes[:-1]) for _ in program.reductions]
            for _ in range(2)
        ]
        row = run(program, sizes, inputs, made[0])
        if row.fused is not None:
            cases.append((row, inputs, made))
    return cases


def fuse_programs():
    fused.build(row.fused for row, _, _ in _interpreted())


def test_fused_functions_give_what_the_interpreter_gives():
    compile_programs()
    cases = [case for case in _interpreted() if fused.address(case[0].fused)]
    assert len(cases) > 12
    for row, inputs, (wanted, outputs) in cases:
        execute(row, inputs, outputs, fused.address(row.fused))
        for out, want in zip(outputs, wanted, strict=True):
            assert ((out == want) | (out.isnan() & want.isnan())).all(), row.fused


@pytest.mark.parametrize("sizes", [(10,), (3000,), (50, 700), (20, 30, 40)])
def test_outputs_may_lie_where_inputs_do(sizes):
    # As an optimizer's step: what is written first is read later where it was.
    i = Instruction
    program = Program(
        ("float32", "float32", "float32"),
        (
            i("constant", "float32", (), 0.5),
            i("mul", "float32", (1, 3)),
            i("add", "float32", (4, 2)),
            i("mul", "float32", (5, 3)),
            i("sub", "float32", (0, 6)),
            i("mul", "float32", (1, 2)),
        ),
        (7, 5, 8),
    )
    for turned in (False, True):
        inputs = [filled(torch.float32, sizes, s, special=False) for s in range(3)]
        if turned:
            inputs = [x.permute(*reversed(range(x.dim()))) for x in inputs]
        shape = inputs[0].shape
        wanted = expected(program, shape, [x.clone() for x in inputs])
        run(program, shape, inputs, inputs)
        for out, want in zip(inputs, wanted, strict=True):
            assert torch.equal(out, want)
        # Two inputs change places.
        swap = Program(("float32", "float32"), (), (1, 0))
        a, b = inputs[0].clone(), inputs[1].clone()
        run(swap, shape, inputs[:2], inputs[:2])
        assert torch.equal(inputs[0], b)
        assert torch.equal(inputs[1], a)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize(
    ("sizes", "reduced"),
    [((1,), 1), ((37,), 1), ((100003,), 1), ((5, 7), 1), ((600, 70), 1), ((3, 5000), 1),
     ((2, 3, 400), 2), ((7, 30, 40), 1), ((2, 0), 1), ((0, 3), 1), ((4, 20, 20), 3),
     ((1000, 2), 1), ((30000, 0), 1), ((70, 300, 0, 2), 2)],
)  # fmt: skip
def test_reductions(dtype, sizes, reduced):
    kind = getattr(torch, dtype)
    kinds = ("max", "min") if dtype == "bool" else ("sum", "prod", "max", "min")
    if 0 in sizes[len(sizes) - reduced :]:
        kinds = kinds[:0] if dtype == "bool" else ("sum", "prod")
        if not kinds:
            return
    x = filled(kind, sizes, 3, special=False, small=True)
    program = Program((dtype,), (), (), tuple((k, 0) for k in kinds))
    for turned in (False, True):
        if turned and len(sizes) > 1:
            order = [*range(1, len(sizes)), 0]
            x = x.permute(order).contiguous().permute(len(sizes) - 1, *range(len(sizes) - 1))
        wanted = expected(program, sizes, [x], reduced)
        guarded = Guarded()
        outputs = [guarded.empty(sizes[: len(sizes) - reduced], kind) for _ in kinds]
        run(program, sizes, [x], outputs)
        guarded.check()
        for k, out, want in zip(kinds, outputs, wanted, strict=True):
            exact = not kind.is_floating_point or k in ("max", "min")
            assert_close(out, want, exact)


def test_reductions_of_what_is_computed_beside_outputs():
    i = Instruction
    program = Program(
        ("float32", "float32", "float32"),
        (i("mul", "float32", (0, 1)), i("add", "float32", (3, 2)), i("mul", "float32", (2, 2))),
        (4,),
        (("sum", 4), ("max", 3), ("sum", 2), ("sum", 5)),
    )
    for sizes in [(40, 300), (3, 9000), (500, 6)]:
        x = filled(torch.float32, sizes, 1, special=False)
        scale = filled(torch.float32, sizes[1:], 2, special=False).expand(sizes)
        rows = filled(torch.float32, (sizes[0], 1), 3, special=False).expand(sizes)
        wanted = expected(program, sizes, [x, scale, rows], 1)
        guarded = Guarded()
        outputs = [guarded.empty(w.shape, w.dtype) for w in wanted]
        run(program, sizes, [x, scale, rows], outputs)
        guarded.check()
        for out, want in zip(outputs, wanted, strict=True):
            torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-4)


def test_extremes_keep_nan_and_sums_infinities():
    x = torch.randn(4, 3000)
    x[0, 1234] = math.nan
    x[1, 77] = math.inf
    x[2, 5], x[2, 2999] = math.inf, -math.inf
    program = Program(("float32",), (), (), (("max", 0), ("min", 0), ("sum", 0)))
    outputs = [torch.empty(4) for _ in range(3)]
    run(program, x.shape, [x], outputs)
    torch.testing.assert_close(outputs[0], x.amax(1), equal_nan=True)
    torch.testing.assert_close(outputs[1], x.amin(1), equal_nan=True)
    # A sum of 3,000 numbers of both signs: torch's own is this far off, too.
    torch.testing.assert_close(
        outputs[2], x.double().sum(1).float(), rtol=0, atol=1e-4, equal_nan=True
    )


def test_long_sums_are_as_exact_as_short_ones():
    x = torch.rand(3_000_001)
    total = torch.empty(())
    run(Program(("float32",), (), (), (("sum", 0),)), x.shape, [x], [total])
    assert abs(total.item() / x.double().sum().item() - 1) < 2e-7


def test_too_many_dims_are_refused():
    x = torch.empty((2,) * 9).permute(8, 0, 7, 1, 6, 2, 5, 4, 3)
    program = Program(("float32",), (), (0,))
    with pytest.raises(ValueError, match="dims"):
        encode(program, x.shape, [x.stride()], [torch.empty((2,) * 9).stride()])
