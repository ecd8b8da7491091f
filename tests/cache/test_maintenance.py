"""``python -m torch_max_backend cache list``, ``prune``, ``verify`` and ``clear``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torch_max_backend.__main__ import main
from torch_max_backend.cache import store
from torch_max_backend.cache.compatibility import environment_components
from torch_max_backend.cache.key import cache_key


@pytest.fixture
def keys(private_cache: Path) -> list[str]:
    """Those of three artifacts of 1000 bytes, the first used last, the last of another MAX."""
    found = []
    for k in range(3):
        parts = {"graph": str(k), **environment_components()}
        if k == 2:
            parts["max"] = "1.0"
        found.append(cache_key(parts))
        store.put(found[-1], bytes([k]) * 1000, parts)
        os.utime(_path(found[-1]), (10_000 - k, 10_000 - k))
    return found


def _path(key: str) -> Path:
    return store.usable_folder() / f"{key}{store.SUFFIX}"


def _left(keys: list[str]) -> list[bool]:
    return [_path(key).exists() for key in keys]


def test_list(keys: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list"]) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert [line[:16] for line in lines] == [key[:16] for key in keys]
    assert "max 1.0 (another max)" in lines[2]
    assert "another" not in lines[0]
    assert total.startswith("3 artifacts, 0.0 MB, in ")


def test_prune_keeps_what_was_used_last(
    keys: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    size = _path(keys[0]).stat().st_size
    assert main(["cache", "prune"]) == 0
    assert _left(keys) == [True] * 3
    assert main(["cache", "prune", "--max-mb", str(size / 1e6 + 0.0001)]) == 0
    assert _left(keys) == [True, False, False]
    assert "2 artifacts removed" in capsys.readouterr().out


def test_prune_of_what_is_for_others(keys: list[str]) -> None:
    assert main(["cache", "prune", "--misfits"]) == 0
    assert _left(keys) == [True, True, False]


@pytest.mark.parametrize("damage", ["content", "header", "name"])
def test_verify_removes_what_is_damaged(
    keys: list[str], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "verify"]) == 0
    path = _path(keys[1])
    if damage == "content":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    elif damage == "header":
        path.write_bytes(b"x" + path.read_bytes())
    else:
        path.rename(_path("0" * 64))
    assert main(["cache", "verify"]) == 1
    assert _left(keys) == [True, False, True]
    assert not _path("0" * 64).exists()
    assert "1 damaged artifact" in capsys.readouterr().out


def test_clear(keys: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    kernels = store.usable_folder().parent / "kernels"
    kernels.mkdir(mode=0o700)
    (kernels / "base.mojopkg").write_bytes(b"x" * 10)
    assert main(["cache", "clear"]) == 0
    assert "4 files removed" in capsys.readouterr().out
    assert not any(store.usable_folder().iterdir())
    assert not any(kernels.iterdir())


@pytest.mark.parametrize("action", ["list", "prune", "verify", "clear"])
def test_without_a_cache(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    assert main(["cache", action]) == 1
