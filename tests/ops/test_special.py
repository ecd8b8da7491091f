"""Special functions against mpmath: eager's own float32 is often a hundred units off, its Bessel
functions of the first and second kind are wrong in the seventh digit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import mpmath
import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

_NAN, _INF = float("nan"), float("inf")
_EDGES = [_NAN, _INF, -_INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5]
_COUNT = 40


def _spread(low: float, high: float) -> list[float]:
    torch.manual_seed(0)
    return (low + (high - low) * torch.rand(_COUNT)).tolist()


def _powers(low: float, high: float) -> list[float]:
    return [10.0**e for e in _spread(low, high)]


def _lgamma(x: Any) -> Any:
    return mpmath.log(abs(mpmath.gamma(x)))


def _log_ndtr(x: Any) -> Any:
    return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)


def _scaled(function: Callable[..., Any], order: int, sign: int) -> Callable[[Any], Any]:
    return lambda x: function(order, x) * mpmath.exp(sign * abs(x))


def _bessel(function: Callable[..., Any], order: int) -> Callable[[Any], Any]:
    return lambda x: function(order, x)


special = torch.special
# Function, truth, where.
_ONE: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], list[float]]] = {
    "lgamma": (torch.lgamma, _lgamma, _spread(-9, 9) + _powers(-30, 30)),
    "digamma": (torch.digamma, mpmath.digamma, _spread(-5, 15) + _powers(-30, 30)),
    "trigamma": (lambda x: special.polygamma(1, x), lambda x: mpmath.psi(1, x), _spread(-4, 20)),
    "polygamma": (lambda x: special.polygamma(4, x), lambda x: mpmath.psi(4, x), _spread(0.1, 20)),
    "erfinv": (torch.erfinv, mpmath.erfinv, _spread(-1, 1) + [1 - v for v in _powers(-7, 0)]),
    "erfcx": (
        special.erfcx,
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        _spread(-9, 9) + _powers(0, 3),
    ),
    "ndtri": (
        special.ndtri,
        lambda p: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p),
        _spread(0, 1) + _powers(-30, 0),
    ),
    "log_ndtr": (special.log_ndtr, _log_ndtr, _spread(-6, 5)),
    "bessel_j0": (special.bessel_j0, _bessel(mpmath.besselj, 0), [*_spread(-30, 30), 1e5, 3e17]),
    "bessel_j1": (special.bessel_j1, _bessel(mpmath.besselj, 1), [*_spread(-30, 30), 1e5, 3e17]),
    "bessel_y0": (special.bessel_y0, _bessel(mpmath.bessely, 0), [*_spread(0, 30), 1e5]),
    "bessel_y1": (special.bessel_y1, _bessel(mpmath.bessely, 1), [*_spread(0, 30), 1e5]),
    "spherical": (special.spherical_bessel_j0, mpmath.sinc, [*_spread(-30, 30), 1e20]),
    "i0": (special.i0, _bessel(mpmath.besseli, 0), _spread(-60, 60)),
    "i1": (special.i1, _bessel(mpmath.besseli, 1), _spread(-60, 60)),
    "i0e": (special.i0e, _scaled(mpmath.besseli, 0, -1), _spread(-60, 60)),
    "i1e": (special.i1e, _scaled(mpmath.besseli, 1, -1), _spread(-60, 60)),
    "k0": (special.modified_bessel_k0, _bessel(mpmath.besselk, 0), _spread(0, 60)),
    "k1": (special.modified_bessel_k1, _bessel(mpmath.besselk, 1), _spread(0, 60)),
    "k0e": (special.scaled_modified_bessel_k0, _scaled(mpmath.besselk, 0, 1), _spread(0, 60)),
    "k1e": (special.scaled_modified_bessel_k1, _scaled(mpmath.besselk, 1, 1), _spread(0, 60)),
    "airy_ai": (special.airy_ai, mpmath.airyai, _spread(-20, 12)),
}
# The same of two arguments.
_TWO: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any], list[tuple[float, float]]]] = {
    "zeta": (special.zeta, mpmath.zeta, list(zip(_spread(1.1, 9), _powers(-2, 3), strict=True))),
    "gammainc": (
        special.gammainc,
        lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
        [
            *zip(_spread(0.1, 30), _spread(40, 0), strict=True),
            *zip(_powers(-5, 4), _powers(-5, 4), strict=True),
        ],
    ),
    "gammaincc": (
        special.gammaincc,
        lambda a, x: mpmath.gammainc(a, x, mpmath.inf, regularized=True),
        [
            *zip(_spread(0.1, 30), _spread(40, 0), strict=True),
            *zip(_powers(-5, 4), _powers(-5, 4), strict=True),
        ],
    ),
}


Found = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _arguments(dtype: torch.dtype) -> dict[str, list[torch.Tensor]]:
    given: dict[str, list[torch.Tensor]] = {}
    for name, (_, _, values) in _ONE.items():
        given[name] = [torch.tensor(values + _EDGES, dtype=dtype)]
    edges = [(a, b) for a in _EDGES for b in _EDGES]
    for name, (_, _, pairs) in _TWO.items():
        given[name] = list(torch.tensor(pairs + edges, dtype=dtype).unbind(1))
    return given


def _everything(*tensors: torch.Tensor) -> list[torch.Tensor]:
    rest = iter(tensors)
    found = [f(next(rest)) for f, *_ in _ONE.values()]
    return found + [f(next(rest), next(rest)) for f, *_ in _TWO.values()]


# Nothing but a cast tells float32 from float64: some will do.
_SHORT = ("lgamma", "bessel_y1", "gammainc")


def _short(*tensors: torch.Tensor) -> list[torch.Tensor]:
    rest = iter(tensors)
    functions = [(_ONE | _TWO)[n][0] for n in _SHORT]
    return [
        f(*(next(rest) for _ in _arguments(torch.float32)[n]))
        for n, f in zip(_SHORT, functions, strict=True)
    ]


def _polynomials(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [f(*tensors) for f in _POLYNOMIALS.values()]


def _points() -> list[torch.Tensor]:
    degrees = [0, 1, 2, 3, 7, 8, 30, 31, 40, 101, 600, -1, -0.5, 1.7, _NAN, _INF]
    points = [0.0, 1.0, -1.0, 0.5, -0.5, 0.999, 1.01, -3.0, _NAN, _INF]
    pairs = [(x, n) for x in points for n in degrees if n != 600 or abs(x) <= 1]
    return list(torch.tensor(pairs, dtype=torch.float64).unbind(1))


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    tensors = [t for found in _arguments(torch.float64).values() for t in found]
    short = [t for n in _SHORT for t in _arguments(torch.float32)[n]]
    programs = {
        "float64": Program("float64", _everything, tensors, dynamic=True),
        "float32": Program("float32", _short, short),
        "polynomials": Program("polynomials", _polynomials, _points(), dynamic=True),
    }
    compile_together(list(programs.values()))
    return programs


@cache
def _results(dtype: torch.dtype) -> dict[str, Found]:
    """For each function: the arguments, the results, and eager's."""
    program = _programs()["float32" if dtype == torch.float32 else "float64"]
    names = _SHORT if dtype == torch.float32 else (_ONE | _TWO)
    given = {n: torch.stack(_arguments(dtype)[n]) for n in names}
    results = zip(program.run(), program.eager(), strict=True)
    return {n: (given[n], *pair) for n, pair in zip(given, results, strict=True)}


def _true_values(name: str, arguments: torch.Tensor) -> list[float]:
    truth = (_ONE | _TWO)[name][1]
    with mpmath.workdps(40):
        found = []
        for values in arguments.T.tolist():
            try:
                found.append(float(truth(*map(mpmath.mpf, values)).real))
            except (ValueError, ZeroDivisionError):
                found.append(_NAN)
        return found


@compile_group("special", weight=3)
@pytest.mark.parametrize("name", _SHORT)
def test_float32_is_within_two_units_of_the_truth(name: str) -> None:
    arguments, ours, _ = _results(torch.float32)[name]
    count = len((_ONE | _TWO)[name][2])
    ours = ours[:count]
    exact = torch.tensor(_true_values(name, arguments[:, :count]), dtype=torch.float64)
    known = exact.float().isfinite() & (exact.abs() > 1e-37)
    nearest = exact.float()[known].abs()
    unit = torch.nextafter(nearest, torch.tensor(_INF)) - nearest
    error = (ours[known].double() - exact[known]).abs() / unit.double()
    assert known.sum() > count // 2
    assert error.max() <= 2, (arguments[:, :count][:, known][:, error.argmax()], error.max())


@compile_group("special", weight=3)
@pytest.mark.parametrize("name", [*_ONE, *_TWO])
def test_float64_is_the_truth_but_for_some_digits(name: str) -> None:
    arguments, ours, _ = _results(torch.float64)[name]
    count = len((_ONE | _TWO)[name][2])
    exact = torch.tensor(_true_values(name, arguments[:, :count]), dtype=torch.float64)
    known = exact.isfinite() & (exact.abs() > 1e-300)
    torch.testing.assert_close(ours[:count][known], exact[known], rtol=2e-12, atol=1e-14)


@compile_group("special", weight=3)
@pytest.mark.parametrize("name", [n for n in _ONE if n not in ("trigamma", "polygamma")])
def test_edges_are_eagers(name: str) -> None:
    _, ours, theirs = _results(torch.float64)[name]
    count = len((_ONE | _TWO)[name][2])
    torch.testing.assert_close(ours[count:], theirs[count:], equal_nan=True, rtol=1e-5, atol=1e-6)


_POLYNOMIALS = {
    "t": special.chebyshev_polynomial_t,
    "u": special.chebyshev_polynomial_u,
    "v": special.chebyshev_polynomial_v,
    "w": special.chebyshev_polynomial_w,
    "shifted_t": special.shifted_chebyshev_polynomial_t,
    "shifted_u": special.shifted_chebyshev_polynomial_u,
    "shifted_v": special.shifted_chebyshev_polynomial_v,
    "shifted_w": special.shifted_chebyshev_polynomial_w,
    "h": special.hermite_polynomial_h,
    "he": special.hermite_polynomial_he,
    "l": special.laguerre_polynomial_l,
    "p": special.legendre_polynomial_p,
}


@compile_group("special", weight=3)
@pytest.mark.parametrize("name", _POLYNOMIALS)
def test_polynomials_are_eagers(name: str) -> None:
    at = list(_POLYNOMIALS).index(name)
    program = _programs()["polynomials"]
    ours, theirs = program.run()[at], program.eager()[at]
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-10, atol=1e-11)
