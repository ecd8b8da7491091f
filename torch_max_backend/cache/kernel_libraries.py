"""The files of step libraries in the cache directory: checked, atomic, private to the user.

A library may hold kernels of several families. It has a manifest for each of them,
``<family>-<key>-<contents>.json``, with what it exports of the family, its file and the checksum of
that. The library's file is named by its checksum and written first, so that whatever concurrent
processes do, a manifest that is there names a whole file. Whatever is wrong with either is logged,
removed, and counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_max_backend import environment
from torch_max_backend.errors import LibraryError
from torch_max_backend.log import get_logger
from torch_max_backend.process.private_folders import (
    check_free,
    check_room,
    folder_to_write,
    made_private,
    written_in,
)
from torch_max_backend.process.temporary_folders import temporary_folder

try:
    import fcntl
except ImportError:  # Windows, where Mojo does not run natively anyway
    fcntl = None  # type: ignore[assignment]

FORMAT = 2
FOLDER = "steps"
SUFFIX = ".so"
_MANIFEST = re.compile(r"(?P<family>\w+)-(?P<key>[0-9a-f]{24})-[0-9a-f]{12}\.json")
_LIBRARY = re.compile(r"\w+-(?P<sha256>[0-9a-f]{24})\.so")
_PARTIAL = ".partial-"
_DAY = 24 * 3600
# Seconds without use after which a library of other sources, compilers or processors goes, and
# those after which a file is nobody's who still writes.
_UNUSED, _STALE = 30 * _DAY, 3600
_LOCK_WAIT = 900

log = get_logger("steps")


# Each is called with what is used or was made.
listeners: list[Callable[[Manifest], None]] = []


@dataclass(frozen=True)
class Manifest:
    """What is known of a library.

    Attributes:
        path: The manifest's file.
        family: The name of the family of kernels.
        key: Of sources, compiler, processor and threads.
        file: The library.
        sha256: The library's checksum.
        symbols: What it exports of the family, each with a description.
        size: Bytes of the library.
        used: When it was last used, seconds since the epoch.
    """

    path: Path
    family: str
    key: str
    file: Path
    sha256: str
    symbols: Mapping[str, str]
    size: int
    used: float


def folder() -> Path:
    """Where libraries are kept: in the cache directory, or until the process ends if there is none
    that can be used.

    Raises:
        CacheError: There can be no temporary folder either.
    """
    return folder_to_write(FOLDER)


@dataclass(frozen=True)
class Part:
    """What a library is to export of one family.

    Attributes:
        family: The name of the family of kernels.
        key: Of sources, compiler, processor and threads.
        symbols: What it exports, each with a description.
    """

    family: str
    key: str
    symbols: Mapping[str, str]


def add(parts: Sequence[Part], build: Callable[[Path], Path]) -> list[Manifest]:
    """Build a library and keep it.

    Args:
        parts: What it exports.
        build: Called with an empty folder on the disk where libraries are kept; returns the
            library's file there. Called again, for another disk, if that one is full.

    Returns:
        A manifest for each part.

    Raises:
        CacheError: It could not even be written to a temporary folder.
    """

    def write(kept: Path) -> list[Manifest]:
        check_free(kept)
        with temporary_folder(_PARTIAL, kept) as work:
            try:
                content = build(work).read_bytes()
            except LibraryError:
                check_room(kept)
                raise
        return _keep(kept, content, parts)

    found = written_in(FOLDER, write)
    with contextlib.suppress(OSError):
        tidy(found[0].path.parent, {part.key for part in parts})
    for manifest in found:
        _tell(manifest)
    return found


def _tell(manifest: Manifest) -> None:
    for listener in (*listeners,):
        listener(manifest)


def _keep(kept: Path, content: bytes, parts: Sequence[Part]) -> list[Manifest]:
    sha256 = hashlib.sha256(content).hexdigest()
    name = parts[0].family if len(parts) == 1 else "several"
    file = kept / f"{name}-{sha256[:24]}{SUFFIX}"
    # A library of this name that is there may be damaged, and loaded: it is replaced, not changed.
    _write(file, content)
    found = []
    for part in parts:
        contents = hashlib.sha256("\n".join(sorted(part.symbols)).encode()).hexdigest()[:12]
        manifest = {
            "format": FORMAT,
            "family": part.family,
            "key": part.key,
            "library": file.name,
            "sha256": sha256,
            "size": len(content),
            "symbols": dict(part.symbols),
        }
        path = kept / f"{part.family}-{part.key}-{contents}.json"
        _write(path, json.dumps(manifest, indent=1).encode())
        found.append(
            Manifest(
                path, part.family, part.key, file, sha256, part.symbols, len(content), time.time()
            )
        )
    return found


def _write(path: Path, content: bytes) -> None:
    """Make a file that only its owner can read, whole or not at all."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=_PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def kept(family: str, key: str) -> Iterator[Manifest]:
    """The libraries of a family that fit, whose files are still to be checked."""
    place, start = folder(), f"{family}-{key}-"
    # Not by a pattern: a folder of a thousand libraries takes pathlib 3 ms, and it is asked often.
    names = (n for n in os.listdir(place) if n.startswith(start) and n.endswith(".json"))
    for path in [place / name for name in sorted(names)]:
        try:
            yield read(path)
        except (OSError, ValueError) as e:
            log.warning("The manifest %s of a step library is ignored: %s", path, e)
            _unlink(path)


def read(path: Path) -> Manifest:
    """A manifest.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    name = _MANIFEST.fullmatch(path.name)
    try:
        state = path.stat()
        found = json.loads(path.read_bytes())
        if found["format"] != FORMAT:
            raise ValueError(f"it has format {found['format']!r}, not {FORMAT}")
        if name is None or (found["family"], found["key"]) != name.groups():
            raise ValueError("it is another library's")
        named = _LIBRARY.fullmatch(found["library"])
        if named is None or named["sha256"] != found["sha256"][:24]:
            raise ValueError("it names another library")
        symbols = {str(k): str(v) for k, v in found["symbols"].items()}
        file = path.parent / found["library"]
        return Manifest(
            path, found["family"], found["key"], file, found["sha256"], symbols,
            int(found["size"]), state.st_mtime,
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError("it is no manifest") from e


def problem(manifest: Manifest) -> str:
    """What is wrong with a library's file, "" if nothing is."""
    try:
        with open(manifest.file, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return "it belongs to another user"
            if hashlib.file_digest(file, "sha256").hexdigest() != manifest.sha256:
                return "its checksum is wrong"
    except OSError as e:
        return str(e)
    return ""


def used(manifest: Manifest) -> None:
    """Note that a library is in use."""
    _tell(manifest)
    with contextlib.suppress(OSError):
        os.utime(manifest.path)


def discard(manifest: Manifest, reason: str) -> None:
    """Remove a library that proved bad."""
    log.warning("The step library %s is not used: %s", manifest.file, reason)
    _unlink(manifest.path)
    _unlink(manifest.file)


def remove(path: Path) -> None:
    """Remove the library that a manifest describes, as far as it does. Manifests of its other
    families are found bad when they are read."""
    with contextlib.suppress(OSError, ValueError):
        _unlink(read(path).file)
    _unlink(path)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        log.warning("%s could not be removed: %s", path, e)


@contextlib.contextmanager
def building(family: str, key: str) -> Iterator[None]:
    """In the body, no other process or thread builds libraries of a family.

    A courtesy: without a lock, or after a long wait for one, the same is built twice.
    """
    handle = None
    with contextlib.suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(folder() / f"{family}-{key}.lock", flags, 0o600)
    try:
        if handle is not None and fcntl is not None:
            _lock(handle)
        yield
    finally:
        if handle is not None:
            if fcntl is not None:  # closing is not enough: a forked child may have it open
                with contextlib.suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _lock(handle: int) -> None:
    end = time.monotonic() + _LOCK_WAIT
    delay = 0.02
    while time.monotonic() < end:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(delay)
            delay = min(0.1, delay * 1.5)
        except OSError:
            return


def listed() -> list[tuple[Path, Manifest | None, str]]:
    """The libraries of the cache: each manifest's file, what it says, and what is wrong with it or
    the library ("" if nothing is).

    Raises:
        OSError: The folder cannot be used.
    """
    found: list[tuple[Path, Manifest | None, str]] = []
    if not (environment.cache_dir() / FOLDER).exists():
        return found
    for path in sorted(made_private(FOLDER).glob("*.json")):
        try:
            manifest = read(path)
        except FileNotFoundError:
            continue  # another process was faster
        except (OSError, ValueError) as e:
            found.append((path, None, str(e)))
        else:
            found.append((path, manifest, problem(manifest)))
    return found


def tidy(place: Path, current: Iterable[str]) -> None:
    """Remove the libraries that were not used for long, except those of keys that are in use, and
    what killed processes left."""
    now, spared, named = time.time(), frozenset(current), set()
    for path in place.glob("*.json"):
        match = _MANIFEST.fullmatch(path.name)
        try:
            manifest = read(path)
        except (OSError, ValueError):
            continue  # found bad when it is needed
        if match and match["key"] not in spared and now - manifest.used > _UNUSED:
            _unlink(path)
        else:
            named.add(manifest.file.name)
    for path in place.iterdir():
        try:
            age = now - path.lstat().st_mtime
        except OSError:
            continue
        if path.suffix == SUFFIX and path.name not in named and age > _STALE:
            _unlink(path)
        elif path.name.startswith(_PARTIAL) and age > _STALE:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else _unlink(path)
        elif path.suffix == ".lock" and age > _UNUSED:
            _unlink(path)
