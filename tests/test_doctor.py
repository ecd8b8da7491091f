"""``python -m torch_max_backend doctor``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.groups import compile_group
from torch_max_backend import doctor
from torch_max_backend.__main__ import main
from torch_max_backend.cache import store


@compile_group("doctor")
def test_all_is_well_here(private_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert told.endswith("All is well.\n")
    for word in ("torch: 2.", "max: ", "a model on cpu: compiled in", "0 artifacts", "cores"):
        assert word in told


def test_a_setting_that_does_not_exist(
    private_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_VERBOS", "1")
    assert main(["doctor", "--no-compile"]) == 1
    told = capsys.readouterr().out
    assert "wrong  TORCH_MAX_BACKEND_VERBOS: no such setting" in told
    assert "Did you mean TORCH_MAX_BACKEND_VERBOSE?" in told
    assert "1 thing wrong." in told


def test_a_setting_that_cannot_be(
    private_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_FALLBACK", "eror")
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "onn")
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "wrong  TORCH_MAX_BACKEND_FALLBACK: set to 'eror'\n" in told
    assert "It may be eager, inductor or error, in any case." in told
    assert "wrong  TORCH_MAX_BACKEND_CACHE: set to 'onn'\n" in told
    assert "wrong  not looked at: The environment variable TORCH_MAX_BACKEND_CACHE is" in told
    assert "Correct it first." in told
    assert "Report this" not in told


def test_a_cache_that_cannot_be_used(
    private_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.usable_folder().chmod(0o755)
    assert main(["doctor", "--no-compile"]) == 1
    assert "others have access to it" in capsys.readouterr().out


def test_damaged_artifacts_are_noted(
    private_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.usable_folder() / f"{'a' * 64}.max").write_bytes(b"{}\n")
    assert main(["doctor", "--no-compile"]) == 0
    assert "1 bad artifacts (it has no header)" in capsys.readouterr().out


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("no such file")

    monkeypatch.setattr(doctor, "_machine", broken)
    (found,) = [f for f in doctor.examine(compile=False) if f.what == "broken"]
    assert found.state == doctor.WRONG
    assert "no such file" in found.found
