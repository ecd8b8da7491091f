"""Integers: the ends of their ranges, shifts beyond their width, divisors of 0 and -1; and the
remainders of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.groups import compile_group
from torch_max_backend import ExecutionError

if TYPE_CHECKING:
    from tests.conformance.program import Program

_DTYPES = [torch.int8, torch.int64]

_ANY_PAIR: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "lt": torch.lt,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "left": torch.bitwise_left_shift,
    "right": torch.bitwise_right_shift,
    "left_by_3": lambda a, b: a << 3,
    "left_dunder": lambda a, b: a << b,
    "right_by_70": lambda a, b: a >> 70,
    "right_dunder": lambda a, b: a >> b,
    "number_left": lambda a, b: torch.bitwise_left_shift(5, b),
    "number_right": lambda a, b: torch.bitwise_right_shift(100, b),
    "and_number": lambda a, b: a & 6,
    "number_or": lambda a, b: 9 | b,
    "xor_broadcast": lambda a, b: a[:1] ^ b[1],
    "gcd": torch.gcd,
    "pow": torch.pow,
    "pow_3": lambda a, b: a**3,
    "not": lambda a, b: ~a,
    "abs": lambda a, b: a.abs(),
    "neg": lambda a, b: -a,
}
# Eager divides by zero, or traps, unless these pairs are left out.
_DIVISIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "floor_divide": torch.floor_divide,
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "lcm": torch.lcm,
    "floor_by_7": lambda a, b: a // 7,
    "trunc_by_minus_7": lambda a, b: torch.div(a, -7, rounding_mode="trunc"),
    "remainder_by_7": lambda a, b: a % 7,
    "fmod_by_7": lambda a, b: torch.fmod(a, 7),
    "number_remainder": lambda a, b: torch.remainder(100, b),
    "floor_by_0d": lambda a, b: a // b[0],
}


def _values(dtype: torch.dtype) -> list[int]:
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    found = {least, least + 1, most, most - 1, 0, 1, 2, 3, 6, 7, 31, 63, 64, 100, -1, -2, -7, -100}
    found |= {2**53 + 1, -(2**53) - 1, 2**62 + 3}
    return sorted(v for v in found if least <= v <= most)


def _pairs(dtype: torch.dtype, divisible: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values = _values(dtype)
    least = torch.iinfo(dtype).min
    pairs = [
        (a, b) for a in values for b in values if not divisible or (b != 0 and not (a == least < 0))
    ]
    return tuple(torch.tensor(pairs, dtype=dtype).unbind(1))


@compile_group("integers", weight=3)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", [*_ANY_PAIR, *_DIVISIONS])
def test_integers_are_eagers(name: str, dtype: torch.dtype) -> None:
    divisible = name in _DIVISIONS
    program = _programs()[f"{dtype} {divisible}"]
    at = list(_DIVISIONS if divisible else _ANY_PAIR).index(name)
    torch.testing.assert_close(program.run()[at], program.eager()[at], rtol=0, atol=0)


_QUOTIENTS = {
    "floor": (torch.floor_divide, -(2**31)),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), -(2**31)),
    "remainder": (torch.remainder, 0),
    "fmod": (torch.fmod, 0),
}


_UNSIGNED = {
    "uint8": (torch.uint8, 255),
    "uint64": (torch.uint64, 2**64 - 5),
}


def _words(x: torch.Tensor) -> list[torch.Tensor]:
    """What torch can do with the larger unsigned integers."""
    y, signed = x[1:2], x.to(torch.int64)
    return [
        x & y, x | y, x ^ y, x * y, x == y, x != 0, torch.minimum(x, y), torch.cat([x, y]),
        x.float(), x.double(), x.bool(), signed, (signed + 1).to(x.dtype), x.sum(),
        x.flip(0) * 3, x.sort()[0], x[torch.tensor([2, 0])],
    ]  # fmt: skip


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    a, b = torch.tensor([-(2**31), 7, 9], dtype=torch.int32), torch.tensor(-1, dtype=torch.int32)
    floats = _float_pairs()
    programs = {
        **{
            name: Program(name, _words, [torch.tensor([0, 254, 3, 77, most], dtype=dtype)])
            for name, (dtype, most) in _UNSIGNED.items()
        },
        "floats": Program(
            "floats", lambda *x: [f(*p) for p in (x[:2], x[2:]) for f in _REMAINDERS], floats
        ),
        "empty": Program("empty", torch.floor_divide, [torch.zeros(0, 3).int(), b * 0]),
    }
    for name, (function, _) in _QUOTIENTS.items():
        programs[name] = Program(name, function, [a, b])
    for dtype in _DTYPES:
        for divisible, table in ((False, _ANY_PAIR), (True, _DIVISIONS)):
            name = f"{dtype} {divisible}"
            programs[name] = Program(
                name,
                partial(_all_of, tuple(table.values())),
                _pairs(dtype, divisible),
                dynamic=dtype == torch.int64,
            )
    compile_together(list(programs.values()))
    return programs


def _all_of(
    functions: tuple[Callable[..., torch.Tensor], ...], *tensors: torch.Tensor
) -> list[torch.Tensor]:
    return [f(*tensors) for f in functions]


_REMAINDERS = (torch.fmod, torch.remainder)


def _float_pairs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    wide = torch.randn(200).double() * 10.0 ** torch.randint(-280, 300, (200,)).double()
    short = torch.randn(200) * 10.0 ** torch.randint(-30, 38, (200,))
    return [short, short.flip(0), wide, wide.flip(0)]


@compile_group("integers", weight=3)
@pytest.mark.parametrize("name", [*_UNSIGNED, "empty"])
def test_other_integers_are_eagers(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.tolist() == theirs.tolist()


@compile_group("integers", weight=3)
@pytest.mark.parametrize("name", _QUOTIENTS)
def test_the_smallest_integer_over_minus_one_wraps_around(name: str) -> None:
    program = _programs()[name]
    assert program.run()[0][0] == _QUOTIENTS[name][1]


@compile_group("integers", weight=3)
@pytest.mark.parametrize("name", _QUOTIENTS)
def test_division_by_zero_raises(name: str) -> None:
    program = _programs()[name]
    assert program.executable is not None
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        program.executable([program.tensors[0], torch.tensor(0, dtype=torch.int32)])


@compile_group("integers", weight=3)
@pytest.mark.parametrize("at", [0, 1])
def test_remainders_of_floats_are_exact(at: int) -> None:
    given, results = _float_pairs(), _programs()["floats"].run()
    a, b, modulo, floored = *given[2 * at : 2 * at + 2], *results[2 * at : 2 * at + 2]
    exact = torch.tensor([*map(math.fmod, a.tolist(), b.tolist())], dtype=a.dtype)
    # MAX takes subnormal numbers for zero on CPUs.
    assert torch.equal(modulo, exact * (exact.abs() >= torch.finfo(a.dtype).tiny))
    wrong = (modulo != 0) & ((modulo < 0) != (b < 0))
    assert torch.equal(floored, torch.where(wrong, modulo + b, modulo))
