"""What a wheel and a source archive of this package hold, and what they must not."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_FOREIGN = (".pyc", ".mojoc", ".mef", ".so", ".jsonl", ".orig", ".rej")
# All that a source archive holds beside the package and the kernels.
_TOP = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}


def wheel_problems(wheel: Path, version: str) -> Iterator[str]:
    """What is wrong with a wheel of this checkout."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        texts = {
            Path(n).name: archive.read(n).decode()
            for n in names
            if re.search(r"\.dist-info/(METADATA|WHEEL|entry_points\.txt|licenses/LICENSE)$", n)
        }
    yield from _missing(names, _packaged())
    yield from _foreign(names)
    outside = {n.split("/")[0] for n in names} - {"torch_max_backend"}
    if outside != {f"torch_max_backend-{version}.dist-info"}:
        yield f"top level: {', '.join(sorted(outside))}"
    if texts.get("LICENSE") != (ROOT / "LICENSE").read_text():
        yield "the licence is missing, or another one"
    if "max = torch_max_backend:max_backend" not in texts.get("entry_points.txt", ""):
        yield 'the entry point of backend="max" is missing'
    if "Root-Is-Purelib: true" not in texts.get("WHEEL", ""):
        yield "it is no wheel for all platforms"
    yield from _metadata(message_from_string(texts.get("METADATA", "")), version)


def sdist_problems(sdist: Path, version: str) -> Iterator[str]:
    """What is wrong with a source archive of this checkout."""
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
        found = archive.extractfile(f"torch_max_backend-{version}/PKG-INFO")
        metadata = message_from_string(found.read().decode() if found else "")
    if odd := [m.name for m in members if not (m.isfile() or m.isdir())]:
        yield f"links and the like: {', '.join(odd)}"
    prefix = f"torch_max_backend-{version}/"
    names = {m.name.removeprefix(prefix) for m in members if m.isfile()}
    kernels = {str(p.relative_to(ROOT)) for p in (ROOT / "mojo_kernels").rglob("*.mojo")}
    sources = {n for n in _packaged() if not n.startswith("torch_max_backend/mojo_kernels/")}
    yield from _missing(names, sources | kernels | {"README.md", "CHANGELOG.md", "LICENSE"})
    yield from _foreign(names)
    tops = {n for n in names if "/" not in n} | {n.split("/")[0] for n in names if "/" in n}
    if more := tops - _TOP - {"torch_max_backend", "mojo_kernels"}:
        yield f"not for users: {', '.join(sorted(more))}"
    yield from _metadata(metadata, version)


def _packaged() -> set[str]:
    """The files of the checkout that a wheel holds, by their names there."""
    python = {str(p.relative_to(ROOT)) for p in (ROOT / "torch_max_backend").rglob("*.py")}
    mojo = {
        f"torch_max_backend/{p.relative_to(ROOT)}" for p in (ROOT / "mojo_kernels").rglob("*.mojo")
    }
    return {*python, *mojo, "torch_max_backend/py.typed"}


def _missing(names: set[str], wanted: set[str]) -> Iterator[str]:
    if missing := sorted(wanted - names):
        yield f"{len(missing)} files are missing, such as {missing[0]}"


def _foreign(names: Iterable[str]) -> Iterator[str]:
    for name in sorted(names):
        if name.startswith(("tests/", "benchmarks/")) or name.endswith(_FOREIGN):
            yield f"it should not hold {name}"


def _metadata(found: Message, version: str) -> Iterator[str]:
    wanted = {
        "Name": "torch-max-backend",
        "Version": version,
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
    }
    for key, value in wanted.items():
        if found[key] != value:
            yield f"{key} is {found[key]!r}, not {value!r}"
    required = " ".join(found.get_all("Requires-Dist", []))
    for name in ("torch", "max", "numpy", "safetensors", "sympy", "beartype"):
        if not re.search(rf"(?:^| ){name}\b", required):
            yield f"it does not require {name}"
