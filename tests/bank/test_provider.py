"""Who provides matrix products, and who must not."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator

import pytest
import torch

from torch_max_backend.bank import provider as bank
from torch_max_backend.bank.provider import Provider
from torch_max_backend.errors import ExecutionError

_POINTERS = [ctypes.c_void_p] * 13
_Routine = ctypes.CFUNCTYPE(None, *_POINTERS)


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], Provider | None]]]:
    """The list that ``provider`` asks, for the test to fill; nothing is remembered of it."""
    import torch_max_backend.bank.torch_blas  # noqa: F401  registers itself before the list is hidden

    found: list[Callable[[], Provider | None]] = []
    monkeypatch.setattr(bank, "_candidates", found)
    bank.provider.cache_clear()
    yield found
    bank.provider.cache_clear()


def _provider(name: str, routine: object) -> Provider:
    address = ctypes.cast(routine, ctypes.c_void_p).value  # type: ignore[arg-type]
    routines = {"float32": address or 0, "float64": address or 0, "set_threads": 0}
    return Provider(name, "1", routines, routine)


@_Routine
def _idle(*_: int) -> None:
    """Computes nothing."""


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
def test_torchs_mkl_multiplies() -> None:
    found = bank.provider()
    assert found is not None
    assert torch.__version__ in found.identity
    assert {"float32", "float64", "set_threads"} <= set(found.routines)
    assert bank.multiplies(found, "float32")
    assert bank.multiplies(found, "float64")


def test_a_routine_that_computes_wrong_is_passed_over(
    candidates: list[Callable[[], Provider | None]], caplog: pytest.LogCaptureFixture
) -> None:
    candidates += [lambda: _provider("the wrong one", _idle), lambda: None]
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        assert bank.provider() is None
    assert "the wrong one" in caplog.text


def test_the_first_that_is_right_is_taken(
    candidates: list[Callable[[], Provider | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank, "multiplies", lambda found, dtype: found.name == "right")
    names = ["wrong", "right", "too late"]
    candidates += [lambda n=n: _provider(n, _idle) for n in names]
    found = bank.provider()
    assert found is not None
    assert found.name == "right"


def test_without_a_provider_graphs_ask_for_no_address(
    candidates: list[Callable[[], Provider | None]],
) -> None:
    from tests.tracing import traced
    from torch_max_backend.pipeline import prepare

    module = traced(torch.mm, torch.ones(2, 3), torch.ones(3, 4))
    assert not [i for i in prepare(module).signature.inputs if i.kind == "address"]
    with pytest.raises(ExecutionError, match="float32"):
        bank.routine("float32")


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(torch.float32, ["float32", "set_threads"]), (torch.float64, ["float64", "set_threads"])],
)
def test_graphs_ask_for_what_they_call(
    candidates: list[Callable[[], Provider | None]],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    wanted: list[str],
) -> None:
    from tests.tracing import traced
    from torch_max_backend.options import Options
    from torch_max_backend.pipeline import prepare

    monkeypatch.setattr(bank, "multiplies", lambda found, dtype: True)
    candidates.append(lambda: _provider("any", _idle))
    matrix = torch.ones(3, 3, dtype=dtype)

    def addresses(function: Callable[..., torch.Tensor], options: Options | None = None) -> list:
        inputs = prepare(traced(function, matrix), options).signature.inputs
        return [i.source for i in inputs if i.kind == "address"]

    assert addresses(lambda x: x @ x) == wanted
    assert addresses(lambda x: x + 1) == []
    assert addresses(lambda x: x @ x, Options(bank=False)) == []
