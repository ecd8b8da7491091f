"""Our exceptions reach the user as they are, with MAX's cause where there is one."""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import torch_max_backend
from torch_max_backend import (
    CompilationError,
    ConversionError,
    MaxBackendError,
    UnsupportedDtypeError,
    UnsupportedError,
    UnsupportedOperatorError,
    map_to,
    max_backend,
)
from torch_max_backend.errors import LibraryError
from torch_max_backend.registry.lowerings import registry

pytestmark = pytest.mark.xdist_group("compile-0")

aten = torch.ops.aten
ERRORS = [
    value
    for value in vars(torch_max_backend).values()
    if inspect.isclass(value) and issubclass(value, MaxBackendError)
]


def compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=max_backend, fullgraph=True)(*arguments)


@pytest.fixture
def hypot(monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> Callable[[Any], None]:
    """Lowers ``hypot`` by the given function, or by none."""
    import torch_max_backend.ops  # noqa: F401

    kept = {k: v for k, v in registry.items() if k is not aten.hypot.default}
    monkeypatch.setattr(registry, "lowerings", kept)

    def lower(function: Any) -> None:
        if function is not None:
            map_to(aten.hypot.default)(function)

    return lower


@pytest.mark.parametrize("kind", ERRORS)
def test_parts_are_lines_and_missing_ones_are_left_out(kind: type[MaxBackendError]) -> None:
    assert str(kind("What is wrong.", None, "", "What to do.")) == "What is wrong.\nWhat to do."


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_survive_pickling(kind: type[MaxBackendError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("What is wrong.", "What to do.")))
    assert type(copy) is kind
    assert str(copy) == "What is wrong.\nWhat to do."


def test_there_are_classes_to_catch() -> None:
    assert issubclass(UnsupportedOperatorError, UnsupportedError)
    assert issubclass(UnsupportedOperatorError, NotImplementedError)
    assert issubclass(UnsupportedDtypeError, TypeError)
    assert not any(issubclass(e, BackendCompilerFailed) for e in ERRORS)
    assert all(e.__name__ in torch_max_backend.__all__ for e in ERRORS)


def test_an_unsupported_operator(hypot: Callable[[Any], None]) -> None:
    hypot(None)
    with pytest.raises(MaxBackendError) as caught:
        compiled(lambda x: torch.hypot(x, x) + 1, torch.ones(2, 3))
    assert type(caught.value) is UnsupportedOperatorError
    assert caught.value.operators == ("aten.hypot.default",)
    assert "aten.hypot.default(f32[2, 3], f32[2, 3])" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_an_operator_in_torchs_own_code_is_placed_by_its_module(private_cache: Path) -> None:
    layers = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(3, 2)))
    with pytest.raises(UnsupportedOperatorError, match=r"of module 1\.0 \(Linear\)"):
        compiled(layers.bfloat16(), torch.ones(4, 3))


def test_a_failing_lowering(hypot: Callable[[Any], None]) -> None:
    def lowering(self: Any, other: Any) -> Any:
        raise ValueError("not today")

    hypot(lowering)
    with pytest.raises(MaxBackendError, match="not today") as caught:
        compiled(lambda x: torch.hypot(x, x), torch.ones(2))
    assert type(caught.value) is ConversionError
    assert __file__ in str(caught.value)


def test_kernels_that_cannot_be_built_are_told_or_left_to_max(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.engines.steps import tables

    def fail(*args: Any) -> Any:
        raise LibraryError("The Mojo compiler could not build gemm.so (exit status 1).", "no room")

    def compiles(jobs: Any) -> Any:
        raise CompilationError("MAX was asked")

    monkeypatch.setattr(tables, "kernels_of", fail)
    monkeypatch.setattr("torch_max_backend.driver.job.compile_together", compiles)
    for engine, words in (("steps", "could not build gemm"), ("auto", "MAX was asked")):
        monkeypatch.setenv("TORCH_MAX_BACKEND_ENGINE", engine)
        with pytest.raises(CompilationError, match=words):
            compiled(lambda x: x + 17, torch.ones(2, 3))


def test_a_failing_compile_carries_maxs_own_words(
    private_cache: Path, max_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.engines.max import module

    def fail(*args: Any, **kwargs: Any) -> Any:
        try:
            raise ValueError("function instantiation failed: no kernel for this")
        except ValueError as e:
            raise RuntimeError("Failed to compile the model") from e

    monkeypatch.setattr(module, "compile_slot", contextlib.nullcontext)
    monkeypatch.setattr(module, "session", lambda: SimpleNamespace(compile_async=fail))
    with pytest.raises(MaxBackendError) as caught:
        compiled(lambda x: x + 17, torch.ones(2, 3))
    assert type(caught.value) is CompilationError
    text = str(caught.value)
    assert "a graph of 1 operator." in text
    assert "MAX says: function instantiation failed: no kernel for this" in text
    assert "TORCH_MAX_BACKEND_VERBOSE=1" in text
    # Nothing of it is kept.
    artifacts = private_cache / "artifacts"
    assert not artifacts.exists() or list(artifacts.iterdir()) == []


def test_the_traceback_begins_where_the_backend_does(hypot: Callable[[Any], None]) -> None:
    hypot(None)
    with pytest.raises(UnsupportedOperatorError) as caught:
        compiled(torch.hypot, torch.ones(2), torch.ones(2))
    files = [entry.path.name for entry in caught.traceback if hasattr(entry.path, "name")]
    assert "backend.py" in files
    assert not any("_dynamo/output_graph" in str(entry.path) for entry in caught.traceback)
