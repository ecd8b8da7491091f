"""Archives: what fits this machine arrives, and nothing else ever touches the cache."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cache.transfer.cases import HERE, exported, files, imported, move_to, put
from tests.cache.transfer.test_archives import made
from torch_max_backend import CacheError
from torch_max_backend.cache import store

pytestmark = pytest.mark.xdist_group("compile-0")


def test_round_trip(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {put("one"), put("two")}
    before = files(folder)
    done = exported(tmp_path / "a.tar")
    assert (done.entries, done.kernels, done.skipped) == (2, False, {})
    assert done.size == (tmp_path / "a.tar").stat().st_size
    assert before.keys() == names

    other = move_to(tmp_path / "other", monkeypatch)
    done = imported(tmp_path / "a.tar")
    assert (done.entries, done.present, done.kernels, done.skipped) == (2, 0, False, {})
    assert files(other) == before
    assert {p.stat().st_mode & 0o777 for p in other.iterdir()} == {0o600}
    assert all(store.get(n.removesuffix(".max")) for n in names)
    assert imported(tmp_path / "a.tar").present == 2


def test_an_archive_is_an_ordinary_tar_with_the_manifest_first(tmp_path: Path) -> None:
    name = put("one")
    exported(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar", "r:") as tar:
        assert tar.getnames() == ["manifest.json", name]
        assert all(m.isreg() and m.mode == 0o600 for m in tar.getmembers())
        manifest = json.load(tar.extractfile("manifest.json"))
        content = tar.extractfile(name).read()
    assert manifest["format"] == 1
    assert manifest["environment"] == HERE
    digest = hashlib.sha256(content).hexdigest()
    assert manifest["members"] == [{"name": name, "size": len(content), "sha256": digest}]
    assert (tmp_path / "a.tar").stat().st_mode & 0o777 == 0o600


def test_equal_caches_give_equal_archives(tmp_path: Path) -> None:
    put("one")
    put("two")
    exported(tmp_path / "a.tar")
    exported(tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_existing_entries_are_kept(folder: Path, tmp_path: Path) -> None:
    one, two = put("one"), put("two")
    exported(tmp_path / "a.tar")
    (folder / one).write_bytes(b"mine")
    (folder / two).unlink()
    done = imported(tmp_path / "a.tar")
    assert (done.entries, done.present) == (1, 1)
    assert (folder / one).read_bytes() == b"mine"


OTHERS = [
    ({"torch": "2.14.1"}, "torch 2.14.1 != 2.15.0"),
    ({"max": "26.8"}, "max 26.8 != 26.7.0"),
    ({"mojo": "0.27"}, "mojo 0.27 != 0.26"),
    ({"target": "d" * 64}, "another CPU or accelerator"),
    ({"kernels": "d" * 64}, "other Mojo kernels"),
    ({"package": "d" * 64}, "another version of torch_max_backend"),
    ({"bank": "no such library 1.0"}, "another library of matrix products"),
    ({"torch": "2.14", "target": "d"}, "torch 2.14 != 2.15.0, another CPU or accelerator"),
    ({"torch": "\x1b[2J\n"}, "torch of another kind != 2.15.0"),
]


@pytest.mark.parametrize(("change", "reason"), OTHERS)
def test_what_is_for_another_machine_is_skipped(
    change: dict[str, str],
    reason: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits, other = put("one"), put("one", **change)
    assert exported(tmp_path / "fits.tar").skipped == {other: reason}
    done = exported(tmp_path / "all.tar", everything=True)
    assert (done.entries, done.skipped) == (2, {})

    there = move_to(tmp_path / "other", monkeypatch)
    done = imported(tmp_path / "all.tar")
    assert (done.entries, done.skipped) == (1, {other: reason})
    assert list(files(there)) == [fits]


def test_nothing_for_this_machine(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("one")
    put("two")
    exported(tmp_path / "a.tar")
    environment["torch"] = "2.16.0"
    with pytest.raises(CacheError, match=r"2 skipped: torch 2\.15\.0 != 2\.16\.0\n.*cache warm"):
        exported(tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()
    there = move_to(tmp_path / "other", monkeypatch)
    with pytest.raises(CacheError, match=r"2 skipped: torch 2\.15\.0 != 2\.16\.0"):
        imported(tmp_path / "a.tar")
    assert files(there) == {}


def test_the_bank_of_this_machine_fits(tmp_path: Path) -> None:
    from torch_max_backend.gemm_providers.choice import provider

    found = provider()
    if found is None:
        pytest.skip("no library of matrix products")
    put("one", bank=found.identity)
    assert exported(tmp_path / "a.tar").entries == 1


def test_damaged_entries_are_not_exported(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad, renamed = put("one"), put("two"), "0" * 64 + ".max"
    (folder / bad).write_bytes((folder / bad).read_bytes()[:-1])
    (folder / renamed).write_bytes((folder / good).read_bytes())
    (folder / "notes.txt").write_text("not an entry")
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        done = exported(tmp_path / "a.tar", everything=True)
    assert done.entries == 1
    assert done.skipped == {bad: "damaged", renamed: "damaged"}
    assert bad in caplog.text
    assert renamed in caplog.text


def test_kernels_travel(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = exported(tmp_path / "a.tar")
    assert (done.entries, done.kernels) == (0, True)
    move_to(tmp_path / "other", monkeypatch)
    done = imported(tmp_path / "a.tar")
    assert (done.entries, done.present, done.kernels) == (0, 0, True)
    arrived = tmp_path / "other" / "kernels" / kernels.name
    assert arrived.read_bytes() == kernels.read_bytes()
    assert arrived.stat().st_mode & 0o777 == 0o600
    assert not imported(tmp_path / "a.tar").kernels


def test_kernels_arrive_where_they_are_looked_for(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.registry import kernel_sources as module

    exported(tmp_path / "a.tar")
    move_to(tmp_path / "other", monkeypatch)
    imported(tmp_path / "a.tar")

    def compiled(out: Path) -> None:
        raise AssertionError("the kernels are compiled again")

    monkeypatch.setattr(module, "precompile", compiled)
    found = module._precompiled.__wrapped__(module.BASE, module.kernel_library_name())
    assert found.read_bytes() == kernels.read_bytes()


@pytest.mark.parametrize(
    "change", [{"target": "d"}, {"mojo": "0.27"}, {"kernels": "d"}], ids=lambda c: next(iter(c))
)
def test_other_kernels_are_skipped(
    change: dict[str, str],
    kernels: Path,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exported(tmp_path / "a.tar")
    environment.update(change)
    move_to(tmp_path / "other", monkeypatch)
    with pytest.raises(CacheError, match="1 skipped"):
        imported(tmp_path / "a.tar")
    assert files(tmp_path / "other") == {}


def test_kernels_of_another_name_are_skipped(
    tmp_path: Path, private_cache: Path, environment: dict[str, str]
) -> None:
    made(tmp_path / "a.tar", {f"kernels_{'0' * 24}.mojoc": b"kernels"})
    with pytest.raises(CacheError, match="other Mojo kernels"):
        imported(tmp_path / "a.tar")
    assert files(private_cache) == {}


@pytest.mark.parametrize("path", ["missing.tar", ".", "missing/a.tar"])
def test_files_that_cannot_be_used(path: str, tmp_path: Path) -> None:
    put("one")
    with pytest.raises(CacheError, match="could not be imported"):
        imported(tmp_path / path)
    if path != "missing.tar":
        with pytest.raises(CacheError, match="could not be exported"):
            exported(tmp_path / path)
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_failing_export_keeps_the_old_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = put("one")
    target = tmp_path / "a.tar"
    target.write_text("old")
    real, reads = Path.read_bytes, []

    def changing(self: Path) -> bytes:
        reads.append(self)
        return real(self) + b"x" * (self.name == name and len(reads) > 1)

    monkeypatch.setattr(Path, "read_bytes", changing)
    with pytest.raises(CacheError, match="was changed meanwhile; run the command again"):
        exported(target)
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".tmp"]


@pytest.mark.parametrize("what", ["off", "open to others"])
@pytest.mark.parametrize("command", [exported, imported])
def test_a_cache_that_cannot_be_used(
    what: str, command: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("one")
    exported(tmp_path / "a.tar")
    before = (tmp_path / "a.tar").read_bytes()
    if what == "off":
        monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    else:
        os.chmod(folder, 0o755)
    with pytest.raises(CacheError, match="cache is off" if what == "off" else "cannot be used"):
        command(tmp_path / "a.tar")
    assert (tmp_path / "a.tar").read_bytes() == before
