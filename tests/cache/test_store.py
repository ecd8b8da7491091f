"""Artifacts on disk: whatever is wrong with them is a logged miss."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torch_max_backend.cache import store
from torch_max_backend.process import private_folders

KEY = "0123abcd"
ARTIFACT = bytes(range(256)) * 40
PARTS = {"torch": "2.15", "graph": "77"}


@pytest.fixture(autouse=True)
def folder(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(private_folders, "known", private_folders.Known())
    return private_cache / "artifacts"


@pytest.fixture
def entry(folder: Path) -> Path:
    store.put(KEY, ARTIFACT, PARTS)
    (path,) = folder.iterdir()
    return path


def assert_miss(log: pytest.LogCaptureFixture, *, reason: str = "") -> None:
    log.clear()
    with log.at_level(logging.INFO, "torch_max_backend"):
        assert store.get(KEY) is None
    (record,) = [r for r in log.records if r.levelno == logging.WARNING]
    assert reason in record.getMessage()


def assert_recovers() -> None:
    store.put(KEY, ARTIFACT, PARTS)
    assert store.get(KEY) == (ARTIFACT, (KEY,))


def test_round_trip(folder: Path) -> None:
    store.put(KEY, ARTIFACT, PARTS)
    assert store.get(KEY) == (ARTIFACT, (KEY,))
    store.put("other", b"", {})
    assert store.get("other") == (b"", ("other",))
    assert store.get(KEY) == (ARTIFACT, (KEY,))


def test_an_entry_says_what_its_key_was_made_of(entry: Path) -> None:
    header = json.loads(entry.read_bytes().split(b"\n", 1)[0])
    assert header["components"] == PARTS
    assert header["key"] == KEY


def test_directory_and_entries_are_private(entry: Path) -> None:
    assert entry.stat().st_mode & 0o777 == 0o600
    assert entry.parent.stat().st_mode & 0o777 == 0o700


def test_a_missing_entry_is_a_quiet_miss(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "torch_max_backend"):
        assert store.get(KEY) is None
    assert [r.levelname for r in caplog.records] == ["INFO"]
    assert KEY in caplog.text


def test_a_later_put_replaces(entry: Path) -> None:
    store.put(KEY, b"new", PARTS)
    assert store.get(KEY) == (b"new", (KEY,))
    assert list(entry.parent.iterdir()) == [entry]


def test_truncated_entries_are_misses(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = entry.read_bytes()
    header = whole.index(b"\n") + 1
    for size in (0, 1, header // 2, header - 1, header, header + 1, len(whole) - 1):
        entry.write_bytes(whole[:size])
        assert_miss(caplog)
        assert not entry.exists()
    assert_recovers()


def test_extra_bytes_are_a_miss(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry.write_bytes(entry.read_bytes() + b"\0")
    assert_miss(caplog, reason="checksum")


def test_flipped_bits_never_give_another_artifact(entry: Path) -> None:
    whole = entry.read_bytes()
    header = whole.index(b"\n") + 1
    chosen = random.Random(0)
    places = [*range(header), *(chosen.randrange(header, len(whole)) for _ in range(200))]
    misses = 0
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chosen.randrange(8)
        entry.write_bytes(flipped)
        found = store.get(KEY)
        # A flip in the description of the key harms nobody; the artifact is whole or not taken.
        assert found is None or found.artifact == ARTIFACT
        misses += found is None
        if place >= header:
            assert found is None
    assert misses > 250


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 0}, "format 0"),
        ({"format": store.FORMAT + 1}, f"format {store.FORMAT + 1}"),
        ({"key": "another"}, "another key"),
        ({"sha256": "0" * 64}, "checksum"),
        ({"sha256": None}, "checksum"),
    ],
)
def test_a_wrong_header_is_a_miss(
    entry: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any], reason: str
) -> None:
    line, artifact = entry.read_bytes().split(b"\n", 1)
    entry.write_bytes(json.dumps(json.loads(line) | change).encode() + b"\n" + artifact)
    assert_miss(caplog, reason=reason)
    assert_recovers()


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"[]\n", b"3\n", b"null\n", b"{}\n", b"\xff\xfe\n", b"[" * 100_000, b"\0" * 5000],
    ids=["empty", "line", "list", "number", "null", "no fields", "not text", "deep", "zeros"],
)
def test_garbage_is_a_miss(entry: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    entry.write_bytes(content)
    assert_miss(caplog)
    assert_recovers()


def test_a_renamed_entry_is_a_miss(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.put("other", b"x", {})
    os.replace(entry.with_name("other" + entry.suffix), entry)
    assert_miss(caplog, reason="another key")


def test_a_folder_in_place_of_an_entry_is_a_miss(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(mode=0o700)
    (folder / (KEY + store.SUFFIX)).mkdir()
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        assert store.get(KEY) is None
        store.put(KEY, ARTIFACT, PARTS)
        assert store.get(KEY) is None
    assert "could not be cached" in caplog.text


def test_the_entry_of_another_user_is_a_miss(
    entry: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat

    def foreign(handle: int) -> os.stat_result:
        values = list(real(handle))
        values[4] += 1  # st_uid
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", foreign)
    assert_miss(caplog, reason="another user")


def refuse(folder: Path, log: pytest.LogCaptureFixture, reason: str) -> None:
    log.clear()
    with log.at_level(logging.INFO, "torch_max_backend"):
        for _ in range(2):  # logged once, however often it is asked
            assert store.get(KEY) is None
            store.put(KEY, ARTIFACT, PARTS)
            store.discard(KEY)
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert reason in record.getMessage()
    assert str(folder) in record.getMessage()


def test_the_directory_of_another_user_is_not_used(
    entry: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    refuse(entry.parent, caplog, "belongs to another user")


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707, 0o701, 0o777])
def test_a_directory_open_to_others_is_not_used(
    entry: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    entry.parent.chmod(mode)
    refuse(entry.parent, caplog, "others have access")
    entry.parent.chmod(0o700)
    assert store.get(KEY) == (ARTIFACT, (KEY,))


def test_an_unwritable_directory_is_not_used(
    entry: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    refuse(entry.parent, caplog, "not writable")


def test_a_directory_that_cannot_be_made_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", fail)
    refuse(folder, caplog, "Read-only file system")


def test_a_link_or_file_in_place_of_the_directory_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    refuse(folder, caplog, "not a directory")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    folder.unlink()
    folder.write_text("")
    private_folders.known.warned.clear()
    refuse(folder, caplog, "exists")


@pytest.mark.parametrize("step", ["write", "flush", "fsync", "replace", "mkstemp"])
def test_a_full_disk_is_logged_and_leaves_nothing(
    step: str,
    entry: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step in ("write", "flush"):
        real = os.fdopen

        def opened(handle: int, mode: str) -> Any:
            file = real(handle, mode)

            class Full:
                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *args: object) -> None:
                    file.close()

                def __getattr__(self, name: str) -> Any:
                    return full if name == step else getattr(file, name)

            return Full()

        monkeypatch.setattr(os, "fdopen", opened)
    elif step == "mkstemp":
        monkeypatch.setattr("tempfile.mkstemp", full)
    else:
        monkeypatch.setattr(os, step, full)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        store.put(KEY, b"new", PARTS)
    assert "No space left on device" in caplog.text
    monkeypatch.undo()
    assert [p.name for p in entry.parent.iterdir()] == [entry.name]
    line = json.loads(entry.read_bytes().split(b"\n", 1)[0])
    assert line["key"] == KEY  # the old entry is whole


def test_unreadable_entries_are_misses(
    entry: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("builtins.open", fail)
    assert_miss(caplog, reason="Input/output error")


def test_an_entry_that_cannot_be_removed_is_logged(
    entry: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", fail)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        store.discard(KEY)
    assert "could not be removed" in caplog.text


def test_the_least_recently_used_entries_go_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        store.put(name, b"x" * 1000, {})
    size = (folder / "a.max").stat().st_size
    for age, name in enumerate(("a", "b", "c")):
        os.utime(folder / f"{name}.max", (1000 + age, 1000 + age))
    assert store.get("a") is not None  # now the most recently used
    monkeypatch.setattr(store, "MAX_BYTES", 3 * size + 10)
    store.put("d", b"x" * 1000, {})
    assert {p.stem for p in folder.iterdir()} == {"a", "c", "d"}
    monkeypatch.setattr(store, "MAX_BYTES", size + 10)
    store.put("e", b"x" * 1000, {})
    assert {p.stem for p in folder.iterdir()} == {"e"}


def test_what_killed_writers_left_is_removed(folder: Path) -> None:
    store.put("a", b"x", {})
    old, new = folder / ".old.tmp", folder / ".new.tmp"
    for path in (old, new):
        path.write_bytes(b"partial")
    os.utime(old, (1000, 1000))
    store.put("b", b"x", {})
    assert old.exists()  # that was looked for when the first was put
    os.utime(folder.parent / ".pruned", (1000, 1000))
    store.put("c", b"x", {})
    assert not old.exists()
    assert new.exists()  # another process may be writing it


WRITER = """
import sys
from torch_max_backend.cache import store
mark = sys.argv[1].encode()
for i in range(60):
    store.put("shared", mark * 20000, {"writer": sys.argv[1]})
    found, _ = store.get("shared")
    assert len(found) == 20000 and len(set(found)) == 1, "torn entry"
"""


def test_concurrent_writers_leave_a_whole_entry(folder: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", "-c", WRITER]
    writers = [
        subprocess.Popen([*command, mark], stderr=subprocess.PIPE, text=True) for mark in "ab"
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=600)
        assert writer.returncode == 0, errors
        assert "ignored" not in errors, errors
    assert store.get("shared").artifact in (b"a" * 20000, b"b" * 20000)
    assert [p.name for p in folder.iterdir()] == ["shared.max"]
