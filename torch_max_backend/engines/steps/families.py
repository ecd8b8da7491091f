"""Families of kernels: the source file that holds them, what it imports, and what its libraries are
keyed by."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from torch_max_backend.cache.compatibility import processor
from torch_max_backend.engines.steps import instructions
from torch_max_backend.engines.steps.openmp import team_mode
from torch_max_backend.engines.steps.shells import PACKAGE, Instance
from torch_max_backend.engines.steps.signatures import kernels
from torch_max_backend.engines.steps.sources import own, support, write_own, write_users
from torch_max_backend.registry.kernel_sources import source_digest

_GENERATORS = ("shells.py", "signatures.py", "sources.py", "building.py")


@dataclass(frozen=True)
class Family:
    """Kernels that share their libraries.

    Attributes:
        name: What the files of its libraries begin with.
        modules: The modules of this package's kernels; none for those of ``source``.
        source: The file or the folder of a Mojo package outside this package; "" for this one's.
    """

    name: str
    modules: tuple[str, ...]
    source: str = ""


def family_of(wanted: Instance) -> Family:
    """The family of an instance of a kernel that is there."""
    if wanted.source:
        name = re.sub(r"[^A-Za-z0-9]", "_", Path(wanted.source).stem)
        return Family(f"user_{name}", (), wanted.source)
    _, module = kernels()[wanted.kernel]
    return _family(module)


def _family(module: str) -> Family:
    return Family(module.replace(".", "_"), (module,))


def key_of(family: Family) -> str:
    """What a family's libraries are made of: sources, compiler, processor, threads."""
    return _digest({"family": _sources_digest(family), "shells": _generators(), **_environment()})


def current_keys() -> frozenset[str]:
    """The keys of the libraries of this package's kernels in this environment."""
    modules = {module for _, module in kernels().values()}
    return frozenset(key_of(_family(module)) for module in modules)


def text_key(text: str, modules: Iterable[str]) -> str:
    """What a library of a Mojo text that imports modules of this package's kernels is made of."""
    imported = "".join(_family_text(module) for module in sorted(modules))
    return _digest({"family": text + imported, "shells": _generators(), **_environment()})


def defines() -> dict[str, str]:
    """What the sources are built with."""
    serial = {} if team_mode() == "gomp" else {"TMB_SERIAL": "1"}
    unit = instructions.bfloat16_unit()
    return {"TMB_STEPS": "1", **serial, **({"TMB_BFLOAT16": unit} if unit else {})}


@cache
def _environment() -> Mapping[str, str]:
    return {
        "mojo": version("mojo-compiler"),
        "max": version("max"),
        "processor": processor(),
        "team": team_mode(),
        "bfloat16": instructions.bfloat16_unit(),
    }


@cache
def _generators() -> str:
    found = hashlib.sha256()
    for name in _GENERATORS:
        found.update(Path(__file__).with_name(name).read_bytes())
    return found.hexdigest()


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _sources_digest(family: Family) -> str:
    if family.source:
        return source_digest(Path(family.source)) + _support_text()
    return "".join(map(_family_text, family.modules))


@cache
def _family_text(module: str) -> str:
    return json.dumps(sorted(own([module]).items()))


@cache
def _support_text() -> str:
    return json.dumps(sorted(support().items()))


def write_sources(families: Iterable[Family], folder: Path) -> None:
    """Write the Mojo package that a library's shells import from into a folder.

    Args:
        families: Those of the shells: any of this package's kernels, or one of another's.
        folder: Where the package is made.
    """
    modules: list[str] = []
    for family in families:
        if family.source:
            write_users(Path(family.source), folder / PACKAGE)
        modules += family.modules
    if modules:
        write_own(modules, folder / PACKAGE)
