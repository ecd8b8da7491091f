"""Environment variables: their values, and that they are read late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torch_max_backend import OptionError, SettingError, environment, max_backend

FLAGS: dict[str, tuple[Callable[[], bool], bool]] = {
    "VERBOSE": (environment.verbose, False),
    "PROFILE": (environment.profile, False),
    "BEARTYPE": (environment.beartype_enabled, True),
    "CACHE": (environment.cache_enabled, True),
}


TRUE = ["1", "true", "True", "TRUE", "yes", "YES", "yEs", " 1 ", "on", "On"]
FALSE = ["0", "false", "False", "no", "NO", "off", "OFF", "", " "]
WRONG = [
    *((name, value) for name in FLAGS for value in ("2", "nonsense", "onn", "-1")),
    *(("FALLBACK", value) for value in ("eror", "1", "on")),
    *(("COMPILE_JOBS", value) for value in ("0", "-1", "many", "1.5", "on")),
]


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", TRUE)
def test_on_in_any_case(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TORCH_MAX_BACKEND_{name}", value)
    assert FLAGS[name][0]() is True


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", FALSE)
def test_off_in_any_case(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TORCH_MAX_BACKEND_{name}", value)
    assert FLAGS[name][0]() is False


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_everything_else_is_an_error(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TORCH_MAX_BACKEND_{name}", value)
    with pytest.raises(SettingError) as caught:
        environment.SETTINGS[name].read()
    text = str(caught.value)
    assert f"TORCH_MAX_BACKEND_{name} is set to {value!r}" in text
    allowed = {"FALLBACK": "eager, inductor or error", "COMPILE_JOBS": "a whole number from 1"}
    assert allowed.get(name, "1, true, yes, on (on), or 0, false, no, off or nothing") in text
    with pytest.raises(SettingError):
        environment.check()


@pytest.mark.parametrize("fallback", ["eager", "inductor", "error", None])
def test_no_fallback_hides_a_wrong_value(
    fallback: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FLAGS:
        monkeypatch.delenv(f"TORCH_MAX_BACKEND_{name}", raising=False)
    monkeypatch.setenv("TORCH_MAX_BACKEND_FALLBACK", "error" if fallback else "eror")
    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "many" if fallback else "1")
    torch._dynamo.reset()
    compiled = torch.compile(torch.sin, backend=max_backend, options={"fallback": fallback})
    with pytest.raises(SettingError, match="'many'" if fallback else "'eror'"):
        compiled(torch.ones(3))


def test_no_fallback_hides_an_option_that_this_machine_cannot_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch_max_backend.driver.passes.provider", lambda wanted: None)
    torch._dynamo.reset()
    options = {"fallback": "eager", "bank": "mkl", "min_ops": 1}
    compiled = torch.compile(torch.sin, backend=max_backend, options=options)
    with pytest.raises(OptionError, match="this machine has no 'mkl'"):
        compiled(torch.ones(3))


@pytest.mark.parametrize(
    ("value", "expected"), [("", "eager"), ("Inductor", "inductor"), (" error ", "error")]
)
def test_fallback(value: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_FALLBACK", value)
    assert environment.fallback() == expected


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


@pytest.mark.parametrize(("value", "jobs"), [("3", 3), (" 1 ", 1), ("", None)])
def test_compile_jobs(value: str, jobs: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", value)
    assert environment.compile_jobs() == jobs
    if jobs is not None:
        from torch_max_backend.process.compile_slots import compile_jobs

        assert compile_jobs() == jobs
