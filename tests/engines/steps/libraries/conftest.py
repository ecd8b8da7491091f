"""A cache directory with built libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engines.steps.libraries.cases import CUMSUM, forget
from torch_max_backend.engines.steps import libraries
from torch_max_backend.engines.steps.libraries import addresses, built
from torch_max_backend.engines.steps.runner import runner


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the loop and a cumulative sum, built where PATH has no C compiler."""
    folder = tmp_path_factory.mktemp("libraries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(folder))
        patch.delenv("TORCH_MAX_BACKEND_CACHE", raising=False)
        patch.setenv("PATH", str(folder / "nothing"))
        forget(patch)
        assert not built([CUMSUM])
        addresses([CUMSUM])
        runner()
        assert built([CUMSUM])
    runner.cache_clear()
    return folder


@pytest.fixture
def cache(private_cache: Path, warm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that, for a process that has loaded nothing."""
    shutil.copytree(warm / "steps", private_cache / "steps")
    (private_cache / "steps").chmod(0o700)
    forget(monkeypatch)
    return private_cache / "steps"


@pytest.fixture
def builds(warm: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The main files of what was built since: each build copies the library that is there."""
    (good,) = (warm / "steps").glob("reduction_cumsum-*.so")
    found: list[str] = []

    def fake(main: Path, out: Path, *_: object) -> None:
        found.append(main.read_text())
        shutil.copy(good, out)

    monkeypatch.setattr(libraries, "build", fake)
    return found
