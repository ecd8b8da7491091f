"""Archives: what fits this machine arrives, and nothing else ever touches the cache."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torch_max_backend import CacheError
from torch_max_backend.cache import store
from torch_max_backend.cache.archive import Archive, Manifest, Member, archive
from torch_max_backend.process import private_folders

pytestmark = pytest.mark.xdist_group("compile-0")

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


@pytest.fixture(autouse=True)
def environment(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The components of this machine; a test may change them."""
    from torch_max_backend.cache import compatibility, transfer

    here = dict(HERE)
    monkeypatch.setattr(private_folders, "_refused", set())
    for module in (compatibility, transfer):
        monkeypatch.setattr(module, "environment_components", lambda: here)
    return here


@pytest.fixture
def folder(private_cache: Path) -> Path:
    return private_cache / "artifacts"


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


@pytest.fixture
def kernels(private_cache: Path, environment: dict[str, str]) -> Path:
    """Where this environment's precompiled kernels are kept, with a stand-in for them."""
    from torch_max_backend.registry.kernel_sources import kernel_library_name

    path = private_cache / "kernels" / kernel_library_name()
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"kernels" * 1000)
    return path


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

    monkeypatch.setattr(module, "_precompile", compiled)
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


def made(path: Path, contents: dict[str, bytes]) -> Path:
    """An archive of any contents, with checksums that are right."""
    manifest = Manifest(HERE, tuple(Member.of(n, c) for n, c in contents.items()))
    path.write_bytes(b"".join(archive(manifest, contents.values())))
    return path


@pytest.fixture
def whole(
    folder: Path, kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, Callable[[bytes], None]]:
    """An archive, and a check that an altered one is refused and leaves no trace."""
    for graph in ("one", "two"):
        put(graph)
    kernels.write_bytes(b"kernels")
    path = tmp_path / "a.tar"
    exported(path)
    content = path.read_bytes()
    move_to(tmp_path / "other", monkeypatch)

    def refuse(altered: bytes) -> None:
        path.write_bytes(altered)
        with pytest.raises(CacheError):
            imported(path)
        assert files(tmp_path / "other") == {}

    yield content, refuse
    path.write_bytes(content)
    assert imported(path).entries == 2  # that nothing else made it fail


@properties
@given(data=st.data())
def test_flipped_bits_are_refused(whole: Any, data: st.DataObject) -> None:
    content, refuse = whole
    altered = bytearray(content)
    altered[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refuse(bytes(altered))


def test_a_flip_in_every_header_and_padding_is_refused(whole: Any) -> None:
    content, refuse = whole
    chosen = random.Random(0)
    for block in range(0, len(content), 512):
        for place in {block, block + 155, block + 156, block + 511}:
            altered = bytearray(content)
            altered[place] ^= 1 << chosen.randrange(8)
            refuse(bytes(altered))


@properties
@given(data=st.data())
def test_truncated_archives_are_refused(whole: Any, data: st.DataObject) -> None:
    content, refuse = whole
    refuse(content[: data.draw(st.integers(0, len(content) - 1))])


@properties
@given(extra=st.binary(min_size=1, max_size=2000))
def test_extra_bytes_are_refused(whole: Any, extra: bytes) -> None:
    content, refuse = whole
    refuse(content + extra)
    refuse(extra + content)


@properties
@given(garbage=st.binary(max_size=4000))
def test_garbage_is_refused(whole: Any, garbage: bytes) -> None:
    whole[1](garbage)


FOREIGN = [
    "", ".", "..", "/etc/passwd", "../" + "0" * 64 + ".max", "artifacts/" + "0" * 64 + ".max",
    "0" * 64, "0" * 63 + ".max", "0" * 64 + ".max\n", "A" * 64 + ".max", "٠" * 64 + ".max",
    "kernels_0.mojoc", "kernels_" + "0" * 24 + ".mojoc/x", "manifest.json", "x" * 300,
]  # fmt: skip


@properties
@given(name=st.one_of(st.sampled_from(FOREIGN), st.text(max_size=90)))
def test_foreign_names_are_refused(whole: Any, name: str, tmp_path: Path) -> None:
    good = put_elsewhere()
    whole[1](made(tmp_path / "made.tar", {**good, name: b"content"}).read_bytes())


def put_elsewhere() -> dict[str, bytes]:
    """A whole entry that fits this machine."""
    from torch_max_backend.cache.key import cache_key

    parts = {**HERE, "bank": "", "graph": "three"}
    digest = hashlib.sha256(b"artifact").hexdigest()
    key = cache_key(parts)
    header = {"format": store.FORMAT, "key": key, "sha256": digest, "components": parts}
    return {key + ".max": json.dumps(header).encode() + b"\nartifact"}


def test_that_entry_would_be_taken_alone(tmp_path: Path) -> None:
    assert imported(made(tmp_path / "made.tar", put_elsewhere())).entries == 1


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"key": "0" * 64},
        {"sha256": "0" * 64},
        {"components": {**HERE, "graph": "another"}},
        {"components": {**HERE, "graph": 3}},
        {"components": []},
        {"components": None},
        {},
    ],
    ids=str,
)
def test_a_forged_entry_is_refused(change: dict[str, Any], whole: Any, tmp_path: Path) -> None:
    ((name, content),) = put_elsewhere().items()
    line, artifact = content.split(b"\n")
    header = {**json.loads(line), **change} if change else [[]]
    forged = {name: json.dumps(header).encode() + b"\n" + artifact}
    whole[1](made(tmp_path / "made.tar", forged).read_bytes())


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "twice", "sparse", "plain"])
def test_other_tar_archives_are_refused(kind: str, whole: Any) -> None:
    content, refuse = whole
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        with tarfile.open(fileobj=io.BytesIO(content)) as source:
            for info in source.getmembers():
                tar.addfile(info, source.extractfile(info))
                if kind == "twice":
                    tar.addfile(info, source.extractfile(info))
        extra = tarfile.TarInfo("0" * 64 + ".max")
        extra.linkname = "/etc/passwd"
        types = {"link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "folder": tarfile.DIRTYPE}
        extra.type = {**types, "sparse": tarfile.GNUTYPE_SPARSE}.get(kind, tarfile.REGTYPE)
        if kind != "twice":
            tar.addfile(extra)
    refuse(made.getvalue())


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": "1"},
        {"format": None},
        {"members": 3},
        {"members": [{"name": "0" * 64 + ".max", "size": -512, "sha256": ""}]},
        {"members": [{"name": "0" * 64 + ".max", "size": 8**20, "sha256": ""}]},
        {"members": [{"name": "0" * 64 + ".max", "size": 1.5, "sha256": ""}]},
        {"members": [{"name": "0" * 64 + ".max", "size": 0, "sha256": 0}]},
        {"members": [{"name": "0" * 64 + ".max", "size": 0, "sha256": ""}] * 2},
        {"members": [{"name": None, "size": 0, "sha256": ""}]},
        {"members": [{"name": "0" * 64 + ".max", "size": 0}]},
        {"environment": []},
        {"environment": {"torch": 2}},
        {"more": 1},
    ],
    ids=str,
)
def test_a_wrong_manifest_is_refused(change: dict[str, Any], whole: Any) -> None:
    """With a checksum that is right."""
    from torch_max_backend.cache import archive as module

    content, refuse = whole
    members = Archive(io.BytesIO(content)).manifest.members
    size = int(content[124:135], 8)
    rest = content[512 + -(-size // 512) * 512 :]
    fields = {"format": 1, "environment": HERE, "members": [vars(m) for m in members], **change}
    fields.pop("sha256", None)
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    text = json.dumps({**fields, "sha256": digest}, indent=1, sort_keys=True).encode() + b"\n"
    padding = bytes(-len(text) % 512)
    refuse(module._header("manifest.json", len(text)) + text + padding + rest)


def test_a_newer_format_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.cache import archive as module

    put("one")
    monkeypatch.setattr(module, "FORMAT", 7)
    exported(tmp_path / "a.tar")
    monkeypatch.undo()
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(tmp_path / "other"))
    with pytest.raises(CacheError, match="format 7; this torch_max_backend reads 1"):
        imported(tmp_path / "a.tar")


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff\xfe", b"{}", b"null", b"9" * 5000, b""])
def test_a_manifest_that_is_no_manifest_is_refused(text: bytes, whole: Any) -> None:
    from torch_max_backend.cache import archive as module

    padding = bytes(-len(text) % 512 + 1024)
    whole[1](module._header("manifest.json", len(text)) + text + padding)


def test_an_archive_without_members_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="Nothing in"):
        imported(made(tmp_path / "a.tar", {}))


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
