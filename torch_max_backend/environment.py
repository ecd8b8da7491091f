"""The environment variables, each read when it is needed, never at import."""

from __future__ import annotations

import os
from pathlib import Path

_PREFIX = "TORCH_MAX_BACKEND_"
_TRUE = frozenset({"1", "true", "yes"})


def _flag(name: str, default: bool) -> bool:
    value = os.environ.get(_PREFIX + name)
    return default if value is None else value.strip().lower() in _TRUE


def verbose() -> bool:
    """``TORCH_MAX_BACKEND_VERBOSE``: print each FX graph and MAX graph on stderr."""
    return _flag("VERBOSE", False)


def profile() -> bool:
    """``TORCH_MAX_BACKEND_PROFILE``: print timings of each compile stage and call on stderr."""
    return _flag("PROFILE", False)


def beartype_enabled() -> bool:
    """``TORCH_MAX_BACKEND_BEARTYPE``: check type hints of lowerings at run time (default on)."""
    return _flag("BEARTYPE", True)


def cache_enabled() -> bool:
    """``TORCH_MAX_BACKEND_CACHE``: keep compiled artifacts on disk (default on)."""
    return _flag("CACHE", True)


def fallback() -> str:
    """``TORCH_MAX_BACKEND_FALLBACK``: what option ``fallback`` is unless given: "eager" (default),
    "inductor" or "error"."""
    value = os.environ.get(_PREFIX + "FALLBACK", "").strip().lower()
    return value if value in ("inductor", "error") else "eager"


def cache_dir() -> Path:
    """``TORCH_MAX_BACKEND_CACHE_DIR``, or a folder of the user's cache directory."""
    given = os.environ.get(_PREFIX + "CACHE_DIR")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torch_max_backend"


def dump_dir() -> Path | None:
    """``TORCH_MAX_BACKEND_DUMP``: the folder in which each compile leaves its files, if given."""
    value = os.environ.get(_PREFIX + "DUMP")
    return Path(value).expanduser() if value else None


def compile_jobs() -> int | None:
    """``TORCH_MAX_BACKEND_COMPILE_JOBS``: how many processes may compile at once, if given."""
    value = os.environ.get(_PREFIX + "COMPILE_JOBS")
    return max(1, int(value)) if value and value.isdigit() else None


def names() -> frozenset[str]:
    """The variables that this package reads."""
    flags = (
        "VERBOSE",
        "PROFILE",
        "BEARTYPE",
        "CACHE",
        "CACHE_DIR",
        "FALLBACK",
        "COMPILE_JOBS",
        "DUMP",
    )
    return frozenset(_PREFIX + name for name in flags)
