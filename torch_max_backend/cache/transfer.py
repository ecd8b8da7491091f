"""Moving artifacts between machines of one kind, as one file.

An artifact is native code, and checksums find damage, no malice: whoever made an archive can run
code as the one who imports it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch_max_backend.cache import store
from torch_max_backend.cache.archive import (
    ENTRY,
    Archive,
    Manifest,
    Member,
    archive,
    damaged,
)
from torch_max_backend.cache.compatibility import environment_components, misfits
from torch_max_backend.cache.key import cache_key
from torch_max_backend.errors import CacheError
from torch_max_backend.log import get_logger
from torch_max_backend.process.private_folders import private_dir
from torch_max_backend.registry.kernel_sources import kernel_library_names

log = get_logger("cache")

# What decides whether precompiled kernels fit a machine.
_OF_KERNELS = ("mojo", "kernels", "target")


@dataclass(frozen=True)
class Exported:
    """What ``export_cache`` wrote.

    Attributes:
        entries: How many artifacts.
        kernels: Whether the precompiled kernels are there too.
        size: Size of the archive in bytes.
        skipped: Names of entries left in the store, and why.
    """

    entries: int
    kernels: bool
    size: int
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Imported:
    """What ``import_cache`` did.

    Attributes:
        entries: How many artifacts were added.
        present: How many were there already, and were kept.
        kernels: Whether precompiled kernels were added.
        skipped: Names of what does not fit this machine, and why.
    """

    entries: int
    present: int
    kernels: bool
    skipped: Mapping[str, str]


def export_cache(path: str | os.PathLike[str], *, everything: bool = False) -> Exported:
    """Write the store's artifacts for this environment, and the precompiled kernels, to a file.

    Args:
        path: The file, which is replaced if it exists. Only its owner can read it.
        everything: Artifacts for other environments too.

    Raises:
        CacheError: The cache is off or cannot be used, there is nothing to export, or the file
            cannot be written.
    """
    folder, path = store.usable_folder(), Path(path)
    skipped: dict[str, str] = {}
    try:
        files = list(_entries(folder, everything, skipped))
        libraries = [path for path in _libraries().values() if path.is_file()]
        files += [(path, Member.of(path.name, path.read_bytes())) for path in libraries]
        if not files:
            raise CacheError(
                f"Nothing in {folder} is for this environment."
                + (f"\n{summary(skipped)}" if skipped else ""),
                "Fill the cache first: python -m torch_max_backend cache warm SCRIPT",
                "Or export what is for other environments too: --all" if skipped else None,
            )
        manifest = Manifest(environment_components(), tuple(m for _, m in files))
        contents = (_unchanged(file, member) for file, member in files)
        store.write(path, archive(manifest, contents))
        size = path.stat().st_size
    except OSError as e:
        raise CacheError(f"The cache could not be exported to {path}: {e}") from e
    entries = sum(ENTRY.fullmatch(m.name) is not None for _, m in files)
    return Exported(entries, entries < len(files), size, skipped)


def import_cache(path: str | os.PathLike[str]) -> Imported:
    """Add to the store what an archive holds for this machine. Import only what you trust.

    The whole archive is checked before anything is written. Entries that are there are kept.

    Args:
        path: A file that ``export_cache`` wrote.

    Raises:
        CacheError: The archive is damaged, holds nothing for this machine or cannot be read, or
            the cache is off or cannot be used.
    """
    folder = store.usable_folder()
    skipped: dict[str, str] = {}
    targets: dict[Member, Path] = {}
    try:
        with open(path, "rb") as file:
            opened, libraries = Archive(file), _libraries()
            for member in opened.manifest.members:
                reason = _misfit(member, opened)
                target = libraries.get(member.name, folder / member.name)
                if reason:
                    skipped[member.name] = reason
                else:
                    targets[member] = target
            if not targets:
                raise CacheError(
                    f"Nothing in {path} is for this machine.",
                    summary(skipped),
                    "Export where torch, MAX, torch_max_backend and the CPU are those of here.",
                )
            missing = {m: target for m, target in targets.items() if not target.exists()}
            for member, target in missing.items():
                store.write(target, [opened.content(member)])
        store.prune(folder)
    except OSError as e:
        raise CacheError(f"The cache could not be imported from {path}: {e}") from e
    entries = sum(target.parent == folder for target in missing.values())
    present = sum(target.parent == folder for target in targets.values()) - entries
    return Imported(entries, present, entries < len(missing), skipped)


def summary(skipped: Mapping[str, str]) -> str:
    """One line for each reason, with how many were skipped for it."""
    reasons = sorted(set(skipped.values()))
    count = list(skipped.values()).count
    return "\n".join(f"  {count(reason)} skipped: {reason}" for reason in reasons)


def _libraries() -> dict[str, Path]:
    """Where the precompiled kernels of this environment are, or would be, by name."""
    folder = private_dir("kernels")
    return {} if folder is None else {n: folder / n for n in sorted(kernel_library_names())}


def _entries(
    folder: Path, everything: bool, skipped: dict[str, str]
) -> Iterator[tuple[Path, Member]]:
    """The whole entries of the store to export; notes why others are not."""
    for path in sorted(folder.iterdir()):
        if not ENTRY.fullmatch(path.name) or not path.is_file():
            continue
        content = path.read_bytes()
        try:
            parts = _components(path.name, content)
        except ValueError as e:
            log.warning("The cached artifact %s is not exported: %s", path, e)
            skipped[path.name] = "damaged"
            continue
        reason = "" if everything else ", ".join(misfits(parts).values())
        if reason:
            skipped[path.name] = reason
        else:
            yield path, Member.of(path.name, content)


def _unchanged(path: Path, member: Member) -> bytes:
    content = path.read_bytes()
    if Member.of(path.name, content) != member:
        raise OSError(f"{path} was changed meanwhile; run the command again")
    return content


def _misfit(member: Member, opened: Archive) -> str:
    """Why a member is of no use here, "" if it is; raises ``CacheError`` if it is damaged."""
    content = opened.content(member)
    if not ENTRY.fullmatch(member.name):
        reasons = misfits(opened.manifest.environment, _OF_KERNELS)
        if member.name not in kernel_library_names():
            reasons.setdefault("kernels", "other Mojo kernels")
        return ", ".join(reasons.values())
    try:
        return ", ".join(misfits(_components(member.name, content)).values())
    except ValueError as e:
        raise damaged(f"{member.name}: {e}") from e


def _components(name: str, content: bytes) -> dict[str, str]:
    """What the key of a whole entry was made of; raises ``ValueError`` if it is not whole."""
    line, _, artifact = content.partition(b"\n")
    try:
        header = json.loads(line)
        key, parts = header["key"], header["components"]
        if header["format"] != store.FORMAT:
            raise ValueError(f"it has format {header['format']!r}, not {store.FORMAT}")
        if not all(isinstance(v, str) for v in parts.values()):
            raise ValueError("the components of its key are no text")
        if header["sha256"] != hashlib.sha256(artifact).hexdigest():
            raise ValueError("its checksum is wrong")
        if name != key + store.SUFFIX or cache_key(parts) != key:
            raise ValueError("its key is not that of its components")
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError("it has no header") from e
    return parts
