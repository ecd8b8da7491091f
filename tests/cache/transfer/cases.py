"""Entries, and archives of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from torch_max_backend.cache import store

HERE = {
    "torch": "2.15.0",
    "max": "26.7.0",
    "mojo": "0.26",
    "kernels": "a" * 64,
    "package": "b" * 64,
    "target": "c" * 64,
}
properties = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def put(graph: str, **changes: str) -> str:
    """Store an entry for this environment, or for one with changes; returns its file's name."""
    from torch_max_backend.cache.key import cache_key

    parts = {**HERE, "bank": "", "graph": graph, "signature": "s", "lowerings": "l", **changes}
    key = cache_key(parts)
    store.put(key, f"artifact of {graph}".encode() * 30, parts)
    return key + store.SUFFIX


def exported(path: Path, **options: Any) -> Any:
    from torch_max_backend.cache.transfer import export_cache

    return export_cache(path, **options)


def imported(path: Path) -> Any:
    from torch_max_backend.cache.transfer import import_cache

    return import_cache(path)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def move_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, as on another machine; returns the folder of its entries."""
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(place))
    return place / "artifacts"
