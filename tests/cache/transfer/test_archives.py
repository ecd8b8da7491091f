"""Archives that are damaged, forged or foreign are refused and leave no trace."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cache.transfer.cases import HERE, exported, files, imported, move_to, properties, put
from torch_max_backend import CacheError
from torch_max_backend.cache import store
from torch_max_backend.cache.archive import Archive, Manifest, Member, archive


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
