"""Factorizations put together again, on matrices that are hard, empty or large, and the errors of
matrices that have none."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.program import Program

aten = torch.ops.aten
linalg = torch.linalg

_SIZES = {"batch": (2, 7, 5), "wide": (3, 4, 9), "large": (1, 100, 100), "one": (2, 1, 1)}


def _random(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _hilbert(n: int) -> torch.Tensor:
    i = torch.arange(n, dtype=torch.float64)
    return 1 / (i[:, None] + i + 1)


def _matrices() -> dict[str, torch.Tensor]:
    """Matrices of any shape."""
    low_rank = _random(9, 2) @ _random(2, 8)
    return {
        **{name: _random(*shape) for name, shape in _SIZES.items()},
        "hilbert": _hilbert(12)[None],
        "low_rank": low_rank[None],
        "zero": torch.zeros(1, 4, 4, dtype=torch.float64),
        "empty": torch.zeros(2, 0, 0, dtype=torch.float64),
        "no_columns": torch.zeros(2, 3, 0, dtype=torch.float64),
        "no_batch": torch.zeros(0, 3, 3, dtype=torch.float64),
        "tiny": 1e-200 * _random(1, 6, 5),
        "huge": 1e200 * _random(1, 5, 6),
    }


def _squares() -> dict[str, torch.Tensor]:
    """Symmetric positive definite matrices."""
    made = {n: _random(*s[:1], s[1], s[1]) for n, s in _SIZES.items()}
    made = {n: a @ a.mT + a.shape[-1] * torch.eye(a.shape[-1]) for n, a in made.items()}
    made["hilbert"] = _hilbert(8)[None]
    made["empty"] = torch.zeros(2, 0, 0, dtype=torch.float64)
    made["no_batch"] = torch.zeros(0, 3, 3, dtype=torch.float64)
    return made


def _qr(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> None:
    _close(q @ r, a)
    _close(r, r.triu())
    _orthonormal(q)


def _geqrf(a: torch.Tensor, factors: torch.Tensor, tau: torch.Tensor) -> None:
    theirs = torch.geqrf(a)
    _close(factors, theirs[0])
    _close(tau, theirs[1])


def _lu(a: torch.Tensor, p: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor) -> None:
    _close(p @ lower @ upper, a)
    assert bool((lower.abs() <= 1).all())
    _close(upper, upper.triu())


def _svd(a: torch.Tensor, u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> None:
    _close((u * s.unsqueeze(-2)) @ vh, a)
    _orthonormal(u)
    _orthonormal(vh.mT)
    assert bool((s >= 0).all())
    assert bool((s.diff() <= 0).all())
    _close(s, linalg.svdvals(a))


def _eigh(a: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor) -> None:
    _close((vectors * values.unsqueeze(-2)) @ vectors.mT, a)
    _orthonormal(vectors)
    assert bool((values.diff() >= 0).all())


def _cholesky(a: torch.Tensor, lower: torch.Tensor) -> None:
    _close(lower @ lower.mT, a)
    _close(lower, lower.tril())


def _solved(a: torch.Tensor, x: torch.Tensor) -> None:
    residual = a @ x - a.mT @ a
    if residual.numel():
        size = a.abs().amax() * x.abs().amax() * a.shape[-1]
        assert residual.abs().amax() <= 1e-13 * size


def _turns(a: torch.Tensor) -> torch.Tensor:
    """Skew-symmetric matrices, whose exponentials are rotations, of norms up to thousands."""
    return (a.triu(1) - a.triu(1).mT) * 30


def _rotation(a: torch.Tensor, q: torch.Tensor) -> None:
    _close_by(1e-10, q.mT @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand_as(q))
    _close_by(1e-10, q, linalg.matrix_exp(_turns(a)))


def _orthonormal(q: torch.Tensor) -> None:
    ones = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    torch.testing.assert_close(q.mT @ q, ones, rtol=0, atol=1e-13)


def _close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal but for rounding errors beside the largest number."""
    _close_by(3e-14, ours, theirs)


def _close_by(error: float, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    if theirs.numel():
        size = theirs.abs().amax().item()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=error * size)
    else:
        assert ours.shape == theirs.shape


_GENERAL: dict[str, tuple[Callable[..., object], Callable[..., None]]] = {
    "qr": (lambda a: linalg.qr(a), _qr),
    "qr_complete": (lambda a: linalg.qr(a, "complete"), _qr),
    "geqrf": (lambda a: torch.geqrf(a), _geqrf),
    "lu": (lambda a: linalg.lu(a), _lu),
    "svd": (lambda a: linalg.svd(a, full_matrices=False), _svd),
}
_SQUARE: dict[str, tuple[Callable[..., object], Callable[..., None]]] = {
    "cholesky": (lambda a: linalg.cholesky(a), _cholesky),
    "cholesky_upper": (
        lambda a: linalg.cholesky(a, upper=True),
        lambda a, upper: _cholesky(a, upper.mT),
    ),
    "eigh": (lambda a: linalg.eigh(a), _eigh),
    "eigh_upper": (lambda a: linalg.eigh(a, "U"), _eigh),
    "solve": (lambda a: linalg.solve(a, a.mT @ a), _solved),
    "matrix_exp": (lambda a: linalg.matrix_exp(_turns(a)), _rotation),
    "ldl": (
        lambda a: linalg.ldl_solve(*linalg.ldl_factor_ex(a)[:2], a.mT @ a),
        _solved,
    ),
}
# Traced with static sizes; the dynamic programs take any.
_STATIC = ("batch", "empty")


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    made = {}
    for cases, matrices in ((_GENERAL, _matrices()), (_SQUARE, _squares())):
        for name, (function, _) in cases.items():
            if name != "geqrf":  # torch cannot trace it with symbolic sizes
                made[name] = Program(name, function, [matrices["batch"]], dynamic=True)
            for size in _STATIC:
                key = f"{name}-{size}"
                made[key] = Program(key, function, [matrices[size]])
    made |= {f"{n} fails": Program(n, function, [a]) for n, (function, a) in _FAILING.items()}
    made |= {
        f"{n} of products": Program(n, function, [_products(2, 6, 3, 4)], dynamic=True)
        for n, function in _OF_PRODUCTS.items()
    }
    compile_together(list(made.values()))
    return made


@compile_group("linalg", weight=4)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in [*_GENERAL, *_SQUARE]
        for kind in ("static", "dynamic")
        if (name, kind) != ("geqrf", "dynamic")
    ],
)
def test_factors_make_the_matrix(name: str, kind: str) -> None:
    cases, matrices = (_GENERAL, _matrices()) if name in _GENERAL else (_SQUARE, _squares())
    for size in _STATIC if kind == "static" else matrices:
        a = matrices[size]
        program = _programs()[name if kind == "dynamic" else f"{name}-{size}"]
        if program.error is not None:
            raise program.error
        program.tensors = [a]
        try:
            cases[name][1](a, *program.run())
        except AssertionError as e:
            raise AssertionError(f"{size}: {e}") from e


def _products(*shape: int) -> torch.Tensor:
    n = shape[0] * shape[1]
    return (_random(n, n) + n * torch.eye(n)).reshape(shape)


def _square(a: torch.Tensor) -> torch.Tensor:
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2] * a.shape[3])


# That the matrix is square is known of the values of its sizes only.
_OF_PRODUCTS: dict[str, Callable[[torch.Tensor], object]] = {
    "inv": lambda a: linalg.inv(_square(a)),
    "solve": lambda a: linalg.solve(_square(a), _square(a)[:, :2]),
    "slogdet": lambda a: linalg.slogdet(_square(a)),
}


@compile_group("linalg", weight=4)
@pytest.mark.parametrize("name", _OF_PRODUCTS)
def test_sizes_may_be_products(name: str) -> None:
    program = _programs()[f"{name} of products"]
    for shape in ((2, 6, 3, 4), (3, 2, 1, 6)):
        program.tensors = [_products(*shape)]
        program.assert_agrees()


_NAN = torch.full((3, 3), float("nan"))
_FAILING: dict[str, tuple[Callable[..., object], torch.Tensor]] = {
    "cholesky": (lambda a: linalg.cholesky(a), torch.eye(3) - 0.5),
    "cholesky_ex": (lambda a: linalg.cholesky_ex(a, check_errors=True), torch.eye(3) - 0.5),
    "cholesky_batch": (
        lambda a: linalg.cholesky(a),
        torch.stack([torch.eye(3), torch.eye(3), -torch.eye(3)]),
    ),
    "cholesky_inverse": (lambda a: torch.cholesky_inverse(a), torch.eye(3).triu(1)),
    "inv": (lambda a: linalg.inv(a), torch.ones(2, 2)),
    "inv_ex": (lambda a: linalg.inv_ex(a, check_errors=True), torch.ones(2, 2)),
    "solve": (lambda a: linalg.solve(a, a), torch.ones(2, 2, 2)),
    "lu_factor": (lambda a: linalg.lu_factor(a), torch.ones(3, 3)),
    "eigh": (lambda a: linalg.eigh(a), _NAN),
    "svd": (lambda a: linalg.svd(a), torch.stack([torch.eye(3), _NAN])),
}


@compile_group("linalg", weight=4)
@pytest.mark.parametrize("name", _FAILING)
def test_a_matrix_without_factorization_raises_torchs_error(name: str) -> None:
    program = _programs()[f"{name} fails"]
    with pytest.raises(RuntimeError) as theirs:
        program.eager()
    with pytest.raises(linalg.LinAlgError) as ours:
        program.run()
    assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]


@compile_group("linalg", weight=4)
def test_torch_compile_raises_and_goes_on() -> None:
    """The check is an operator with an effect, which AOTAutograd keeps by tokens."""
    from torch_max_backend import LinearAlgebraError, max_backend

    def function(a: torch.Tensor) -> torch.Tensor:
        linalg.cholesky(a - 2)
        return linalg.cholesky(a)

    compiled = torch.compile(function, backend=max_backend, fullgraph=True, dynamic=False)
    good = 9 * torch.eye(3)
    with pytest.raises(LinearAlgebraError, match="leading minor of order 2"):
        compiled(good - torch.diag(torch.tensor([0.0, 9.0, 0.0])) + 2)
    torch.testing.assert_close(compiled(good), function(good))
