"""The file in which artifacts move between machines: a tar archive of one fixed layout.

First a manifest (JSON: format, environment, name, size and SHA-256 of each member, and a SHA-256
of all that), then the members in its order. Every other byte of the file follows from the manifest
and is compared when it is read. So whatever else tar can express (links, folders, sparse files, a
name twice) cannot occur, and no damage passes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

from torch_max_backend.errors import CacheError

FORMAT = 1
ENTRY = re.compile(r"[0-9a-f]{64}\.max")
KERNELS = re.compile(r"[a-z][a-z0-9_]*_[0-9a-f]{24}\.mojoc")
_MANIFEST = "manifest.json"
_BLOCK = 512
_END = bytes(2 * _BLOCK)
_MAX_MANIFEST = 64 * 2**20
# Twelve characters of a tar header, in octal.
_MAX_SIZE = 8**11 - 1


@dataclass(frozen=True)
class Member:
    """One file of an archive.

    Attributes:
        name: Its name: that of an entry of the store, or of the precompiled kernels.
        size: Its size in bytes.
        sha256: SHA-256 of its content.
    """

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, content: bytes) -> Member:
        """Describes a file with this content."""
        return cls(name, len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """What an archive says of itself.

    Attributes:
        environment: Where it was made, as ``cache.fit.environment_components`` says it.
        members: Its files, in order.
    """

    environment: Mapping[str, str]
    members: tuple[Member, ...]

    def encoded(self) -> bytes:
        """The manifest as the archive holds it."""
        fields: dict[str, Any] = {
            "format": FORMAT,
            "environment": dict(self.environment),
            "members": [asdict(m) for m in self.members],
        }
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        return json.dumps({**fields, "sha256": digest}, indent=1, sort_keys=True).encode() + b"\n"


def archive(manifest: Manifest, contents: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of an archive, in parts.

    Args:
        manifest: Describes the members.
        contents: The members' contents, in the manifest's order.
    """
    text = manifest.encoded()
    yield _header(_MANIFEST, len(text)) + text + _padding(len(text))
    for member, content in zip(manifest.members, contents, strict=True):
        yield _header(member.name, member.size)
        yield content
        yield _padding(member.size)
    yield _END


@dataclass
class Archive:
    """An archive, opened for reading. Opening it checks all but the members.

    Args:
        file: A file with random access, opened for reading.

    Raises:
        CacheError: It is not an archive of this format, or damaged.
        OSError: It could not be read.
    """

    file: BinaryIO
    manifest: Manifest = field(init=False)
    _offsets: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        actual = self.file.seek(0, os.SEEK_END)
        text = self._manifest_text()
        self.manifest = _parsed(text)
        offset = _BLOCK + _padded(len(text))
        for member in self.manifest.members:
            self._offsets[member.name] = offset
            offset += _BLOCK + _padded(member.size)
        expected = offset + len(_END)
        if actual != expected:
            raise damaged(f"it has {actual} bytes, not {expected}")
        if self._at(offset, len(_END)) != _END:
            raise damaged("something follows its last member")

    def content(self, member: Member) -> bytes:
        """The content of a member of the manifest.

        Raises:
            CacheError: It is not what the manifest says.
            OSError: It could not be read.
        """
        padded = _padded(member.size)
        block = self._at(self._offsets[member.name], _BLOCK + padded)
        if block[:_BLOCK] != _header(member.name, member.size):
            raise damaged(f"{member.name} is not where the manifest says")
        content = block[_BLOCK : _BLOCK + member.size]
        if any(block[_BLOCK + member.size :]) or Member.of(member.name, content) != member:
            raise damaged(f"the checksum of {member.name} is wrong")
        return content

    def _manifest_text(self) -> bytes:
        header = self._at(0, _BLOCK)
        try:
            size = int(header[124:135], 8)
        except ValueError:
            size = -1
        if not 0 <= size <= _MAX_MANIFEST or header != _header(_MANIFEST, size):
            raise damaged("it does not begin with a manifest")
        text = self._at(_BLOCK, _padded(size))
        if len(text) < size or any(text[size:]):
            raise damaged("its manifest is cut off")
        return text[:size]

    def _at(self, offset: int, size: int) -> bytes:
        self.file.seek(offset)
        return self.file.read(size)


def damaged(reason: str) -> CacheError:
    """The error for an archive that cannot be used at all."""
    return CacheError(
        f"This is no archive of the cache, or a damaged one: {reason}.",
        "Copy it again, or make it again: python -m torch_max_backend cache export FILE",
    )


def _parsed(text: bytes) -> Manifest:
    try:
        found = json.loads(text)
        version = found["format"]
        if type(version) is int and version != FORMAT:
            raise CacheError(
                f"The archive has format {version}; this torch_max_backend reads {FORMAT}.",
                "Export it again with the torch_max_backend that is installed here.",
            )
        members = tuple(Member(**m) for m in found["members"])
        for member in members:
            if type(member.size) is not int or not 0 <= member.size <= _MAX_SIZE:
                raise ValueError(f"size {member.size!r}")
            if not ENTRY.fullmatch(member.name) and not KERNELS.fullmatch(member.name):
                raise ValueError(f"name {member.name!r}")
            if not isinstance(member.sha256, str):
                raise TypeError(f"checksum {member.sha256!r}")
        if len({m.name for m in members}) != len(members):
            raise ValueError("a name occurs twice")
        environment = found["environment"]
        if not all(isinstance(v, str) for v in environment.values()):
            raise TypeError("the environment is no text")
        manifest = Manifest(environment, members)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise damaged(f"its manifest is wrong: {ascii(str(e))[:100]}") from e
    # Other spellings of the same JSON are refused too, and with them every flipped bit.
    if manifest.encoded() != text:
        raise damaged("the checksum of its manifest is wrong")
    return manifest


def _header(name: str, size: int) -> bytes:
    """The header of a plain file (ustar), mode 0600, owner 0, date 0: always the same bytes."""
    block = bytearray(_BLOCK)
    for start, value in (
        (0, name.encode()),
        (100, b"0000600\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, b"%011o\0" % size),
        (136, b"%011o\0" % 0),
        (148, b" " * 8),
        (156, b"0"),
        (257, b"ustar\x0000"),
    ):
        block[start : start + len(value)] = value
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _padding(size: int) -> bytes:
    return bytes(_padded(size) - size)
