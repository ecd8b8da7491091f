"""The files that ``torch.compiler.save_cache_artifacts`` collects: of this package's cache, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

KIND = "max_backend"


class _File(CacheArtifact):
    """A file, by its key; it is read when artifacts are saved, not when it is noted."""

    read: Callable[[str], bytes]
    write: Callable[[str, bytes], None]

    @property
    def content(self) -> bytes:
        return self.__dict__["given"] or type(self).read(self.key)

    @content.setter
    def content(self, given: bytes) -> None:
        self.__dict__["given"] = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _File) and self.key == other.key

    def __hash__(self) -> int:
        return hash((KIND, self.key))

    def populate_cache(self) -> None:
        type(self).write(self.key, self.content)

    @staticmethod
    def encode(content: Any) -> bytes:
        return b""

    @staticmethod
    def type() -> str:
        return KIND


def register(read: Callable[[str], bytes], write: Callable[[str, bytes], None]) -> None:
    """Make torch know this package's files; once in a process.

    Args:
        read: Returns what a file holds, by the key it was noted under; nothing if it is gone.
        write: Puts a file that was saved elsewhere into the cache.
    """
    _File.read, _File.write = staticmethod(read), staticmethod(write)
    CacheArtifactFactory.register(_File)


def note(key: str) -> None:
    """A file is used or was made: it is to be saved, if somebody saves."""
    CacheArtifactManager.record_artifact(KIND, key, None)


__all__ = ["note", "register"]
