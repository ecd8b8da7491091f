"""A cache of entries for a machine that tests describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.transfer.cases import HERE
from torch_max_backend.process import private_folders


@pytest.fixture(autouse=True)
def environment(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The components of this machine; a test may change them."""
    from torch_max_backend.cache import compatibility, transfer

    here = dict(HERE)
    monkeypatch.setattr(private_folders, "known", private_folders.Known())
    for module in (compatibility, transfer):
        monkeypatch.setattr(module, "environment_components", lambda: here)
    return here


@pytest.fixture
def folder(private_cache: Path) -> Path:
    return private_cache / "artifacts"


@pytest.fixture
def kernels(private_cache: Path, environment: dict[str, str]) -> Path:
    """Where this environment's precompiled kernels are kept, with a stand-in for them."""
    from torch_max_backend.registry.kernel_sources import kernel_library_name

    path = private_cache / "kernels" / kernel_library_name()
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"kernels" * 1000)
    return path
