"""Elementary functions: within 2 units in the last place over the whole range of floats."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

INF, NAN = float("inf"), float("nan")

UNARY = {
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log2": torch.log2,
    "log10": torch.log10,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erfc": torch.erfc,
}
BINARY = {
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
}
NUMBERS = {
    "pow_scalar": lambda x: x**2.5,
    "pow_fifth": lambda x: x**5,
    "pow_cube": lambda x: x**3,
    "pow_inverse": lambda x: x**-1,
    "pow_root": lambda x: x**0.5,
    "pow_base": lambda x: 3.75**x,
    "copysign_scalar": lambda x: torch.copysign(x, -1.0),
}
# Where torch's own float64 is no truth.
EXACT = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log10": mpmath.log10,
    "erfc": mpmath.erfc,
    "sinc": mpmath.sincpi,
}

_SPECIAL = [
    0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 0.25, 2.5, -7.0, 2e-38,
    -2e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284, -87.3, -104.0, 1e10,
    1e22, 1.5707964, 3.1415927, 0.99999994, 1.0000001, 128.0, -149.5, 1000.0, 16777217.0, 131072.0,
]  # fmt: skip


def _sweep() -> torch.Tensor:
    """Numbers from all over float32: bit patterns at equal steps, and special values."""
    bits = np.arange(0, 1 << 32, 40009, dtype=np.uint64).astype(np.uint32)
    return _normal(torch.cat([torch.from_numpy(bits.view(np.float32)), torch.tensor(_SPECIAL)]))


def _normal(x: torch.Tensor) -> torch.Tensor:
    """Without subnormal numbers, which MAX's threads take for zeros."""
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, torch.zeros_like(x).copysign(x), x)


def _pairs() -> list[torch.Tensor]:
    """All pairs of special values, and random numbers of every size."""
    special = torch.tensor(_SPECIAL)
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, (2, 20000), dtype=np.uint64).astype(np.uint32)
    wild = torch.from_numpy(bits.view(np.float32))
    tame = torch.from_numpy(random.normal(size=(2, 20000)).astype(np.float32))
    a = [special.repeat_interleave(len(special)), wild[0], wild[0].abs(), tame[0].exp()]
    b = [special.repeat(len(special)), wild[1], 3 * tame[1], 20 * tame[1]]
    return [_normal(torch.cat(a)), _normal(torch.cat(b))]


def _doubles() -> torch.Tensor:
    """Numbers of float64, tame and wild, and one that is nearly a multiple of pi/2."""
    random = np.random.default_rng(0)
    wild = random.integers(0, 1 << 64, 60, dtype=np.uint64).view(np.float64)
    tame = [random.uniform(-1, 1, 60), random.normal(size=60) * 3, random.uniform(-40, 40, 60)]
    near = [6381956970095103 * 2.0**797, 1e22, 1e-300, 0.5, 1.5, 2.0, 1000.0]
    return _normal(torch.from_numpy(np.concatenate([*tame, wild[np.isfinite(wild)], near])))


def units(ours: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """The error of float32 numbers in units in the last place of the float64 truth."""
    _, exponent = torch.frexp(truth)
    unit = torch.ldexp(torch.ones_like(truth), exponent.clamp(min=-125) - 24)
    error = (ours.double() - truth).abs() / unit
    # Beyond the largest number by less than a unit, infinity is as good.
    large = (truth.abs() > torch.finfo(torch.float32).max * (1 - 2**-23)) & ours.isinf()
    same = (ours == truth.float()) | (ours.isnan() & truth.isnan())
    # MAX's threads write zeros for subnormal numbers.
    same |= (ours == 0) & (truth.abs() < torch.finfo(torch.float32).tiny)
    zero = (ours == 0) & (truth == 0) & (ours.signbit() != truth.signbit())
    error = torch.where(same | (large & (ours.sign() == truth.sign())), 0.0, error)
    return torch.where(zero, INF, torch.nan_to_num(error, nan=INF))


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    def unary(x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x) for f in UNARY.values()]

    def numbers(x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x) for f in NUMBERS.values()]

    def few(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.sin(x), torch.log2(x), torch.erfc(x), torch.atan2(x, x[:1])]

    def binary(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [f(x, y) for f in BINARY.values()]

    def shapes(x: torch.Tensor) -> list[torch.Tensor]:
        row, column = x[:1, ::2], x[:, :1]
        views = (x, x.t(), x[:, 1::2], row + column, x[2, 3], x[:0], x[:, None].expand(-1, 2, -1))
        return [f(v) for f in (torch.sin, torch.signbit) for v in views] + [
            torch.atan2(row, column),
            torch.pow(x, column),
            torch.pow(x[2, 3], x),
            *torch.frexp(x.t()),
        ]

    matrix = torch.randn(5, 19, generator=torch.Generator().manual_seed(0))
    programs = {
        "unary": Program("unary", unary, [_sweep()]),
        "numbers": Program("numbers", numbers, [_sweep()]),
        "binary": Program("binary", binary, _pairs()),
        "doubles": Program("doubles", lambda x: [*unary(x), torch.sinc(x)], [_doubles()]),
        "shapes": Program("shapes", shapes, [matrix]),
        "shapes-dynamic": Program("shapes-dynamic", shapes, [matrix], dynamic=True),
    }
    short = _normal(_sweep()[::7].bfloat16())
    programs["bfloat16"] = Program("bfloat16", few, [short])
    compile_together(list(programs.values()))
    return programs


def _assert_close(program: str, position: int, bound: float = 2.0) -> None:
    case = _programs()[program]
    truth = case.flat(*[t.double() for t in case.tensors])[position]
    ours = case.run()[position]
    error = units(ours, truth)
    worst = int(error.argmax())
    at = [t[worst].item() for t in case.tensors]
    assert error[worst] <= bound, f"{at}: {ours[worst].item()} instead of {truth[worst].item()}"


@compile_group("elementary", weight=4)
@pytest.mark.parametrize("name", UNARY)
def test_float32_is_within_two_units(name: str) -> None:
    _assert_close("unary", list(UNARY).index(name))


@compile_group("elementary", weight=4)
@pytest.mark.parametrize("name", NUMBERS)
def test_beside_a_number(name: str) -> None:
    _assert_close("numbers", list(NUMBERS).index(name))


@compile_group("elementary", weight=4)
@pytest.mark.parametrize("name", BINARY)
def test_float32_of_two_is_within_two_units(name: str) -> None:
    _assert_close("binary", list(BINARY).index(name))


@compile_group("elementary", weight=4)
@pytest.mark.parametrize("name", [*UNARY, "sinc"])
def test_float64_is_within_two_units(name: str) -> None:
    case = _programs()["doubles"]
    ours = case.run()[[*UNARY, "sinc"].index(name)]
    exact = EXACT.get(name) or getattr(mpmath, name)
    with mpmath.workprec(200):
        for x, y in zip(case.tensors[0].tolist(), ours.tolist(), strict=True):
            if name == "erfc" and abs(x) > 30:
                assert y == (0.0 if x > 0 else 2.0)
                continue
            truth = exact(mpmath.mpf(x))
            if isinstance(truth, mpmath.mpc):
                assert np.isnan(y), x
            elif abs(truth) > mpmath.mpf(2) ** 1024:
                assert y == np.copysign(INF, float(mpmath.sign(truth))), x
            else:
                unit = mpmath.mpf(2) ** (max(mpmath.frexp(truth)[1], -1021) - 53)
                flushed = y == 0 and abs(truth) < mpmath.mpf(2) ** -1022
                assert flushed or abs(mpmath.mpf(y) - truth) <= 2 * unit, (x, y)


@compile_group("elementary", weight=4)
def test_sixteen_bit_floats_are_computed_in_float32() -> None:
    case = _programs()["bfloat16"]
    wide = case.flat(*[t.float() for t in case.tensors])
    for ours, theirs in zip(case.run(), wide, strict=True):
        # Beside a middle of two neighbours the last bit of float32 decides.
        torch.testing.assert_close(ours, theirs.bfloat16(), equal_nan=True)


@compile_group("elementary", weight=4)
@pytest.mark.parametrize("program", ["shapes", "shapes-dynamic"])
def test_shapes_and_views(program: str) -> None:
    case = _programs()[program]
    for ours, theirs in zip(case.run(), case.eager(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_small_powers_need_no_library() -> None:
    import torch_max_backend.ops  # noqa: F401
    from torch_max_backend.registry.lowerings import registry

    power = registry[torch.ops.aten.pow.Tensor_Scalar]
    floats, integers = torch.ones(2), torch.arange(2)
    assert power.libraries({"self": floats, "exponent": 2}) == ()
    assert power.libraries({"self": floats, "exponent": 0.5}) == ()
    assert power.libraries({"self": floats, "exponent": 2.5}) == ("elementwise.unary",)
    assert power.libraries({"self": integers, "exponent": 70}) == ()
    assert power.libraries({"self": integers, "exponent": 2.5}) == ("elementwise.unary",)
