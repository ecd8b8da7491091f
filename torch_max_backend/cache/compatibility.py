"""What artifacts are made for, and whether that is this machine and installation."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from torch_max_backend.cache.targets import Target
from torch_max_backend.process.processor import cpu_info
from torch_max_backend.registry.kernel_sources import kernel_digest

_PACKAGE = Path(__file__).resolve().parents[1]
# The stages whose code decides what an artifact is.
# Folders whose sources decide what an artifact is.
_DECIDING = (
    "compat", "registry", "graph", "convert", "ops", "gemm_providers", "engines", "driver",
)  # fmt: skip
_OTHER = {
    "kernels": "other Mojo kernels",
    "package": "another version of torch_max_backend",
    "target": "another CPU or accelerator",
    "bank": "another library of matrix products",
}


def cache_key(parts: Mapping[str, str]) -> str:
    """SHA-256 over the components."""
    return digest(json.dumps(dict(parts), sort_keys=True))


@cache
def environment_components() -> dict[str, str]:
    """The part of a key that does not depend on the graph."""
    return {
        "torch": torch.__version__,
        "max": version("max"),
        "mojo": version("mojo-compiler"),
        "kernels": kernel_digest(),
        "package": package_digest(),
        "target": digest(_target()),
    }


def misfits(parts: Mapping[str, str], names: tuple[str, ...] = ()) -> dict[str, str]:
    """How what an artifact was made for differs from this machine and installation.

    Args:
        parts: The components of its key, or those of the environment alone.
        names: The components to compare; all of the environment, and the library of matrix
            products, if none are given.

    Returns:
        By the name of each component that differs, what is other about it.
    """
    mine = environment_components()
    target = Target.written(parts.get("target", ""))
    found = {}
    if target is not None:
        mine = {**mine, "torch": public_version(torch.__version__)}
        lacking = target.lacks()
        if lacking:
            found["target"] = f"it needs {lacking}"
    for name in names or mine:
        if name == "target" and target is not None:
            continue
        theirs = parts.get(name, "")
        if theirs != mine[name]:
            found[name] = _OTHER.get(name) or f"{name} {_shown(theirs)} != {mine[name]}"
    if not names and (bank := parts.get("bank", "")) and not _has_bank(bank):
        found["bank"] = _OTHER["bank"]
    return found


def public_version(version: str) -> str:
    """A version without what says how it was built (``+cpu``, ``+cu130``)."""
    return version.partition("+")[0]


def _has_bank(identity: str) -> bool:
    from torch_max_backend.gemm_providers.choice import provider

    here = provider(identity.partition(" ")[0])
    return here is not None and here.identity == identity


def _shown(version: str) -> str:
    """A version from a file, which could be any text."""
    return version if re.fullmatch(r"[\w.+-]{1,40}", version, re.ASCII) else "of another kind"


@cache
def package_digest() -> str:
    """SHA-256 of the Python sources of the stages that make artifacts."""
    return _sources_digest(p for s in _DECIDING for p in (_PACKAGE / s).rglob("*.py"))


@cache
def runtime_digest() -> str:
    """SHA-256 of the other Python sources that a cached graph depends on."""
    folders = ("cache", "runtime", "process")
    paths = [p for s in folders for p in (_PACKAGE / s).rglob("*.py")]
    return _sources_digest([*paths, *_PACKAGE.glob("*.py")])


def _sources_digest(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _target() -> str:
    """The machine that artifacts are compiled for: CPU with its features, accelerators."""
    parts = [processor()]
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        parts += [str(torch.cuda.get_device_properties(i)) for i in range(count)]
    return "\n".join(parts)


def processor() -> str:
    """The system and the CPU with its features, as far as native code depends on them."""
    named = ("model name", "flags", "Features", "CPU part")
    parts = [value for name, value in cpu_info().items() if name in named]
    if not cpu_info():
        parts = [platform.processor()]
    return "\n".join([platform.system(), platform.machine(), *parts])
