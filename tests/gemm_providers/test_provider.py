"""Who provides matrix products, and who must not."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_max_backend.errors import ExecutionError
from torch_max_backend.gemm_providers import choice as bank
from torch_max_backend.gemm_providers.provider import Provider

Candidates = dict[str, Callable[[], Provider | None]]

_POINTERS = [ctypes.c_void_p] * 13
_Routine = ctypes.CFUNCTYPE(None, *_POINTERS)


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Iterator[Candidates]:
    """What ``provider`` asks, for the test to change; nothing is remembered of it."""
    bank.names()
    found = dict(bank.CANDIDATES)
    monkeypatch.setattr(bank, "CANDIDATES", found)
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
    found = bank.provider("mkl")
    assert found is not None
    assert torch.__version__ in found.identity
    assert {"float32", "float64", "set_threads"} == set(found.routines)
    assert bank.multiplies(found, "float32")
    assert bank.multiplies(found, "float64")


def test_a_routine_that_computes_wrong_is_passed_over(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    candidates["mkl"] = lambda: _provider("the wrong one", _idle)
    monkeypatch.setattr(bank, "made_by_intel", lambda: True)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        assert bank.provider("mkl") is None
    assert "the wrong one" in caplog.text
    found = bank.provider()
    assert found is not None
    assert found.name == "mojo"


@pytest.mark.parametrize(("intel", "chosen"), [(True, "mkl"), (False, "mojo")])
def test_the_fastest_for_the_processor_is_taken(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch, intel: bool, chosen: str
) -> None:
    candidates["mkl"] = lambda: _provider("mkl", _idle)
    monkeypatch.setattr(bank, "multiplies", lambda found, dtype: True)
    monkeypatch.setattr(bank, "made_by_intel", lambda: intel)
    found = bank.provider()
    assert found is not None
    assert found.name == chosen


def test_an_unknown_provider_is_none() -> None:
    assert bank.provider("cublas") is None
    assert bank.names() == ["mojo", "mkl"]


def test_a_missing_routine_is_an_error(candidates: Candidates) -> None:
    candidates["mkl"] = lambda: None
    with pytest.raises(ExecutionError, match=r"mkl\.float32"):
        bank.routine("mkl.float32")
    with pytest.raises(ExecutionError, match=r"mojo\.float32"):
        bank.routine("mojo.float32")


def test_a_bank_that_is_not_here_is_an_error(candidates: Candidates) -> None:
    from tests.tracing import traced
    from torch_max_backend.driver.passes import prepare
    from torch_max_backend.errors import OptionError
    from torch_max_backend.options import Options

    candidates["mkl"] = lambda: None
    with pytest.raises(OptionError, match="no 'mkl'"):
        prepare(traced(torch.mm, torch.ones(2, 3), torch.ones(3, 4)), Options(bank="mkl"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_graphs_ask_for_what_they_call(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    from tests.tracing import traced
    from torch_max_backend.driver.passes import prepare
    from torch_max_backend.graph.signature import Signature
    from torch_max_backend.options import Options

    monkeypatch.setattr(bank, "multiplies", lambda found, dtype: True)
    candidates["mkl"] = lambda: _provider("mkl", _idle)
    matrix = torch.ones(3, 3, dtype=dtype)

    def signature(function: Callable[..., torch.Tensor], choice: bool | str) -> Signature:
        return prepare(traced(function, matrix), Options(bank=choice)).signature

    def addresses(function: Callable[..., torch.Tensor], choice: bool | str) -> list[str]:
        return [i.source for i in signature(function, choice).inputs if i.kind == "address"]

    name = str(dtype).removeprefix("torch.")
    wanted = [f"mkl.{name}", "mkl.set_threads"] if dtype.is_floating_point else []
    assert addresses(lambda x: x @ x, "mkl") == wanted
    assert addresses(lambda x: x + 1, "mkl") == []
    assert addresses(lambda x: x @ x, "mojo") == []
    assert addresses(lambda x: x @ x, False) == []
    assert signature(lambda x: x @ x, "mojo").bank.startswith("mojo")
    assert not signature(lambda x: x @ x, False).bank
    assert not signature(lambda x: x + 1, "mojo").bank


def test_a_provider_is_found_under_fake_tensors() -> None:
    bank.provider.cache_clear()
    names = [name for name in bank.names() if bank.provider(name)]
    bank.provider.cache_clear()
    with FakeTensorMode():
        assert [name for name in bank.names() if bank.provider(name)] == names
