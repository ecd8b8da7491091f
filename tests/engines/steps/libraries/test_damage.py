"""Libraries that are damaged are built again."""

from __future__ import annotations

import ctypes.util
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.steps.libraries.cases import CUMSUM, files, sums_right
from torch_max_backend.engines.steps.libraries import built

pytestmark = pytest.mark.xdist_group("step_libraries")


def _truncate(library: Path, manifest: Path) -> None:
    library.write_bytes(library.read_bytes()[:1000])


def flip(library: Path, manifest: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 0xFF
    library.write_bytes(bytes(content))


def _foreign(library: Path, manifest: Path) -> None:
    """A whole file that is no library of these kernels."""
    shutil.copy(ctypes.util.__file__, library)
    _resign(library, manifest)


def _empty(library: Path, manifest: Path) -> None:
    library.write_bytes(b"")
    _resign(library, manifest)


def _without_symbols(library: Path, manifest: Path) -> None:
    (other,) = library.parent.glob("run-*.so")
    shutil.copy(other, library)
    _resign(library, manifest)


def _resign(library: Path, manifest: Path) -> None:
    import hashlib

    content = json.loads(manifest.read_text())
    content["sha256"] = hashlib.sha256(library.read_bytes()).hexdigest()
    content["library"] = f"cumsum-{content['sha256'][:24]}.so"
    library.rename(library.with_name(content["library"]))
    manifest.write_text(json.dumps(content))


def _no_library(library: Path, manifest: Path) -> None:
    library.unlink()


def _no_manifest(library: Path, manifest: Path) -> None:
    manifest.unlink()


def _bad_manifest(library: Path, manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:50])


def _other_manifest(library: Path, manifest: Path) -> None:
    (other,) = library.parent.glob("run-*.json")
    shutil.copy(other, manifest)


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        flip,
        _foreign,
        _empty,
        _without_symbols,
        _no_library,
        _no_manifest,
        _bad_manifest,
        _other_manifest,
    ],
)
def test_what_is_damaged_is_built_again(
    cache: Path,
    builds: list[str],
    damage: Callable[[Path, Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    library, manifest = files(cache)
    damage(library, manifest)
    with caplog.at_level(logging.WARNING, "torch_max_backend.steps"):
        assert sums_right()
    assert len(builds) == 1
    assert bool(caplog.records) == (damage is not _no_manifest)
    assert built([CUMSUM])
