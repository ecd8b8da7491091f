"""Filling the cache ahead of time; a stand-in for the backend stores and finds artifacts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_max_backend import CacheError
from torch_max_backend.ahead_of_time import warm as module
from torch_max_backend.ahead_of_time.warm import warm
from torch_max_backend.cache import store
from torch_max_backend.process import private_folders

pytestmark = pytest.mark.xdist_group("compile-0")

X = torch.ones(3)


@pytest.fixture(autouse=True)
def empty(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_folders, "known", private_folders.Known())


@pytest.fixture
def background() -> Any:
    """The class ``Background``, once MAX is loaded: it belongs to the thread that loads it."""
    import max.graph  # noqa: F401

    from torch_max_backend.driver.background import Background

    return Background


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Keeps an artifact for each code of a graph, and takes the place of ``max_backend``."""

    def stand_in(graph: Any, inputs: Any) -> Any:
        key = graph.code
        if store.get(key.encode().hex()[-100:]) is None:
            store.put(key.encode().hex()[-100:], b"artifact", {})
        return graph.forward

    monkeypatch.setattr(module, "max_backend", stand_in)
    return stand_in


def add(x: torch.Tensor, number: float = 1.0) -> torch.Tensor:
    return x + number


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def counts(done: Any) -> tuple[int, int, int]:
    assert done.seconds >= 0
    return done.compiled, done.loaded, done.failed


@pytest.mark.parametrize("program", [add, Model()], ids=["function", "module"])
def test_a_plain_program_is_compiled_for_max(program: Any, backend: Any) -> None:
    assert counts(warm(program, X)) == (1, 0, 0)
    torch._dynamo.reset()
    assert counts(warm(program, X)) == (0, 1, 0)


def test_arguments_are_handed_on(backend: Any) -> None:
    seen: list[Any] = []
    warm(torch.compiler.disable(lambda *a, **k: seen.append((a, k))), 1, 2, number=3)
    assert seen == [((1, 2), {"number": 3})]


def _in_place(backend: Any) -> Any:
    model = Model()
    model.compile(backend=backend)
    return model


@pytest.mark.parametrize(
    "compiled",
    [
        lambda backend: torch.compile(add, backend=backend),
        lambda backend: torch.compile(Model(), backend=backend),
        _in_place,
    ],
    ids=["function", "module", "in place"],
)
def test_a_compiled_program_is_taken_as_it_is(
    compiled: Any, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, "max_backend")  # compiling again would be an error
    program = compiled(backend)
    assert counts(warm(program, X)) == (1, 0, 0)
    assert counts(warm(program, X)) == (0, 0, 0)  # in memory already


def test_each_graph_counts(backend: Any) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 3

    assert counts(warm(broken, X)) == (2, 0, 0)


def test_the_callers_errors_are_raised(backend: Any) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("of the program")

    before = list(store.listeners)
    with pytest.raises(ZeroDivisionError, match="of the program"):
        warm(torch.compiler.disable(wrong), X)
    assert store.listeners == before


def test_graphs_of_the_background_are_waited_for(background: Any) -> None:
    running = threading.Event()

    def compile() -> Any:
        running.wait(600)
        store.put("late", b"artifact", {})
        return lambda arguments: arguments

    def program() -> None:
        background(lambda arguments: arguments, compile)
        threading.Timer(0.3, running.set).start()

    assert counts(warm(torch.compiler.disable(program))) == (1, 0, 0)
    assert store.get("late").artifact == b"artifact"


def test_failures_are_counted(background: Any, private_cache: Path) -> None:
    def compile() -> Any:
        raise RuntimeError("no such kernel")

    def program() -> None:
        background(lambda arguments: arguments, compile)
        (private_cache / "artifacts").chmod(0o755)
        store.put("one", b"artifact", {})

    assert counts(warm(torch.compiler.disable(program))) == (0, 0, 2)


def test_an_artifact_that_could_not_be_loaded_counts_as_compiled() -> None:
    store.put("one", b"of another MAX", {})

    def program() -> None:
        assert store.get("one")
        store.discard("one")
        store.put("one", b"artifact", {})

    assert counts(warm(torch.compiler.disable(program))) == (1, 0, 0)


def test_without_a_cache_nothing_is_run(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        raise AssertionError("it ran")

    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    with pytest.raises(CacheError, match="cache is off"):
        warm(program)
    monkeypatch.delenv("TORCH_MAX_BACKEND_CACHE")
    (private_cache / "artifacts").mkdir(mode=0o755)
    with pytest.raises(CacheError, match="cannot be used"):
        warm(program)
