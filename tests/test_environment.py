"""Environment variables: their values, and that they are read late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torch_max_backend import environment

FLAGS: dict[str, tuple[Callable[[], bool], bool]] = {
    "VERBOSE": (environment.verbose, False),
    "PROFILE": (environment.profile, False),
    "BEARTYPE": (environment.beartype_enabled, True),
    "CACHE": (environment.cache_enabled, True),
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["1", "true", "True", "TRUE", "yes", "YES", "yEs", " 1 "])
def test_true_in_any_case(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TORCH_MAX_BACKEND_{name}", value)
    assert FLAGS[name][0]() is True


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["0", "false", "False", "no", "NO", "", "2", "nonsense"])
def test_everything_else_is_false(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TORCH_MAX_BACKEND_{name}", value)
    assert FLAGS[name][0]() is False


@pytest.mark.parametrize("name", FLAGS)
def test_defaults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"TORCH_MAX_BACKEND_{name}", raising=False)
    read, default = FLAGS[name]
    assert read() is default


def test_each_read_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("1", "0", "1"):
        monkeypatch.setenv("TORCH_MAX_BACKEND_VERBOSE", value)
        assert environment.verbose() is (value == "1")


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(tmp_path))
    assert environment.cache_dir() == tmp_path
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", "~/somewhere")
    assert environment.cache_dir() == Path.home() / "somewhere"
    monkeypatch.delenv("TORCH_MAX_BACKEND_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_dir() == tmp_path / "torch_max_backend"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert environment.cache_dir() == Path.home() / ".cache" / "torch_max_backend"


@pytest.mark.parametrize(
    ("value", "jobs"), [("3", 3), ("0", 1), ("", None), ("many", None), ("-1", None)]
)
def test_compile_jobs(value: str, jobs: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", value)
    assert environment.compile_jobs() == jobs
    if jobs is not None:
        from torch_max_backend.compile.session import compile_jobs

        assert compile_jobs() == jobs
