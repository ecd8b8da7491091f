"""The Mojo package that the shells of a library import their kernels from."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from torch_max_backend.engines.steps.shells import PACKAGE, STAND_IN
from torch_max_backend.registry.kernel_sources import family_sources, write_modules

# What the kernels of this package import from `STAND_IN`.
_MAX = re.compile(r"^from (?:extensibility|layout|max)\b[\w.]* import ", re.MULTILINE)
# What user-defined kernels import instead of MAX's threads, which a step library must not use:
# where a name of MAX is, and the module of this package's kernels that has one like it.
_OURS = {
    ("max.algorithm", "sync_parallelize"): "core.team",
    ("max.runtime.asyncrt", "parallelism_level"): "core.team",
    ("extensibility", "foreach"): "core.each",
}
_SUPPORT = "tmb_support"
_MODULES = sorted({re.escape(module) for module, _ in _OURS})
_IMPORT = re.compile(
    rf"^from ({'|'.join(_MODULES)}) import (?:\(([^)]*)\)|([^\n(]+))$", re.MULTILINE
)


def write_own(modules: Iterable[str], package: Path) -> None:
    """Make a folder the package of modules of this package's kernels and what they import."""
    write_modules(own(modules), package)


def own(modules: Iterable[str]) -> dict[str, str]:
    """The texts of modules of this package's kernels and of what they import, by name: without MAX.

    Raises:
        CompilationError: There is no such module.
    """
    texts: dict[str, str] = {}
    for module in (*modules, STAND_IN):
        texts.update(family_sources(module))
    to = f"from {PACKAGE}.{STAND_IN} import "
    return {name: _MAX.sub(to, text) for name, text in texts.items()}


def write_users(source: Path, package: Path) -> None:
    """Make a folder the package of user-defined kernels, with what they use of ours beside it.

    Args:
        source: A file or the folder of a Mojo package.
        package: The folder, which is made.
    """
    if source.is_dir():
        shutil.copytree(source, package)
    else:
        package.mkdir()
        (package / "__init__.mojo").write_text("\n")
        shutil.copyfile(source, package / source.name)
    write_modules(support(), package.with_name(_SUPPORT))
    for path in package.rglob("*.mojo"):
        path.write_text(_IMPORT.sub(_replaced, path.read_text()))


def support() -> dict[str, str]:
    """The texts of our files that user-defined kernels use, by name."""
    found: dict[str, str] = {}
    for module in set(_OURS.values()):
        found.update(family_sources(module))
    return found


def _replaced(match: re.Match[str]) -> str:
    """An import of MAX's, with what is ours taken from here."""
    module = match[1]
    listed = re.sub(r"#[^\n]*", "", match[2] or match[3])
    theirs, lines = [], []
    for name in filter(None, (n.strip() for n in listed.split(","))):
        ours = _OURS.get((module, name.split()[0]))
        if ours:
            lines.append(f"from {_SUPPORT}.{ours} import {name}")
        else:
            theirs.append(name)
    if theirs:
        lines.append(f"from {module} import {', '.join(theirs)}")
    return "\n".join(lines)
