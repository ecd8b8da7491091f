"""The package's Mojo kernels, precompiled once per compiler version and content.

What nearly every model needs is one library, ``mojo_kernels/__init__.mojo``; each other family is
one of its own, so that a model pays for precompiling only those that it calls. A family is a file,
named by its folder and its name: ``"linalg.eigen"`` is ``mojo_kernels/linalg/eigen.mojo``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from torch_max_backend.errors import CompilationError
from torch_max_backend.process.private_folders import check_free, check_room, written_in
from torch_max_backend.process.temporary_folders import temporary_folder

BASE = "base"

# Of the files that the Mojo compiler reads.
_SUFFIXES = (".mojo", ".🔥")
_IMPORT = re.compile(r"^from (\.\.?)([\w.]+) import", re.MULTILINE)


@cache
def kernel_sources() -> Path:
    """The folder of the Mojo sources: inside the installed package, or beside it in a checkout.

    Raises:
        CompilationError: The installation lacks them.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "mojo_kernels", package.parent / "mojo_kernels"):
        if (folder / "__init__.mojo").is_file():
            return folder
    raise CompilationError(
        "The Mojo kernels (mojo_kernels/) are missing from this installation.",
        "Reinstall torch-max-backend from a wheel or a full checkout.",
    )


@cache
def kernel_digest() -> str:
    """SHA-256 of the kernels' sources and the Mojo version."""
    return source_digest(kernel_sources())


@cache
def kernel_library_name(library: str = BASE) -> str:
    """The name of the file that holds a precompiled library.

    Raises:
        CompilationError: There is no such family.
    """
    digest = hashlib.sha256(version("mojo-compiler").encode())
    for name, text in sorted(family_sources(_module(library)).items()):
        digest.update(f"{name}\0{text}\0".encode())
    # MAX caches the analysis of a library by path, so the name carries the content.
    return f"{library.replace('.', '_')}_{digest.hexdigest()[:24]}.mojoc"


@cache
def kernel_library_names() -> frozenset[str]:
    """The names that precompiled libraries of these sources may have."""
    root = kernel_sources()
    families = [".".join(p.relative_to(root).with_suffix("").parts) for p in root.glob("*/*.mojo")]
    return frozenset(kernel_library_name(name) for name in [BASE, *families])


def source_digest(source: Path) -> str:
    """SHA-256 of Mojo sources (a file, or the folder of a Mojo package) and the Mojo version.

    Raises:
        CompilationError: They cannot be read.
    """
    digest = hashlib.sha256(version("mojo-compiler").encode())
    try:
        for path in _files(source):
            name = path.relative_to(source.parent)
            digest.update(str(name).encode() + b"\0" + path.read_bytes() + b"\0")
    except OSError as e:
        raise CompilationError(f"The Mojo sources {source} cannot be read: {e}") from e
    return digest.hexdigest()


def _files(source: Path) -> list[Path]:
    """The Mojo files of sources; what a link in a package leads to is compiled with it."""
    if not source.is_dir():
        return [source]
    walk = os.walk(source, followlinks=True)
    return sorted(Path(at, n) for at, _, names in walk for n in names if n.endswith(_SUFFIXES))


def _file_name(library: str | Path) -> str:
    if isinstance(library, str):
        return kernel_library_name(library)
    return f"{library.stem}_{source_digest(library)[:24]}.mojoc"


def kernel_library_path(library: str | Path = BASE) -> Path:
    """A precompiled library (a ``.mojoc``); precompiles it the first time.

    Concurrent processes each write into a folder of their own and rename, so none sees a partial
    file.

    Args:
        library: ``BASE``, the name of a family, or Mojo sources outside this package: a file, or
            the folder of a Mojo package.

    Raises:
        CompilationError: There is no such family, or the Mojo compiler refused the sources.
        CacheError: The library can be written nowhere.
    """
    name = _file_name(library)
    path = _precompiled(library, name)
    if not path.is_file():  # someone has cleared the cache since
        _precompiled.cache_clear()
        path = _precompiled(library, name)
    return path


@cache
def _precompiled(library: str | Path, name: str) -> Path:
    return written_in("kernels", lambda folder: _precompiled_in(folder, library, name))


def _precompiled_in(folder: Path, library: str | Path, name: str) -> Path:
    """The library of this name in a folder; raises ``OSError`` if it cannot be written there."""
    target = folder / name
    if target.is_file():
        return target
    check_free(folder)
    # The compiled module is named after its file, so only the folder may be temporary.
    with temporary_folder(".partial-", folder) as partial:
        sources = partial / "sources"
        _copy(library, sources) if isinstance(library, Path) else _gather(library, sources)
        try:
            precompile(sources, partial / name)
        except CompilationError:
            check_room(folder)
            raise
        os.replace(partial / name, target)
    return target


def family_sources(family: str) -> dict[str, str]:
    """The texts of a family's file and of what that imports, by name: ``"linalg.eigen"``.

    An import that this does not see is an error of the Mojo compiler, which is given nothing else.

    Raises:
        CompilationError: There is no such family.
    """
    waiting, found = [family], {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = (kernel_sources() / _path(name)).read_text()
        except OSError as e:
            raise CompilationError(f"There is no family of Mojo kernels {name!r}: {e}") from e
        folder = name.rpartition(".")[0]
        for dots, module in _IMPORT.findall(found[name]):
            beside = folder if dots == "." else ""
            waiting.append(f"{beside}.{module}" if beside else module)
    return found


def write_modules(texts: Mapping[str, str], package: Path) -> None:
    """Make a folder the Mojo package of modules.

    Args:
        texts: Their texts by name, as of ``family_sources``.
        package: The folder, which is made.
    """
    package.mkdir()
    for name, text in {"__init__": "", **texts}.items():
        path = package / _path(name)
        if not path.parent.exists():
            path.parent.mkdir()
            (path.parent / "__init__.mojo").write_text("")
        path.write_text(text)


def _module(library: str) -> str:
    return "__init__" if library == BASE else library


def _path(module: str) -> str:
    return module.replace(".", "/") + ".mojo"


def _gather(library: str, folder: Path) -> None:
    """Make ``folder`` the Mojo package of a library: its family and what that imports."""
    write_modules(family_sources(_module(library)), folder)
    if library != BASE:
        (folder / "__init__.mojo").write_text(f"from .{library} import *\n")


def _copy(source: Path, folder: Path) -> None:
    """Make ``folder`` the Mojo package of sources outside this package."""
    if source.is_dir():
        shutil.copytree(source, folder)
        return
    folder.mkdir()
    shutil.copy(source, folder / source.name)
    (folder / "__init__.mojo").write_text(f"from .{source.stem} import *\n")


def precompile(sources: Path, out: Path) -> None:
    """Have Mojo compile the package in a folder to a file.

    Raises:
        CompilationError: It does not compile, or there is no Mojo.
    """
    mojo = Path(sysconfig.get_path("scripts")) / "mojo"
    command = [str(mojo) if mojo.is_file() else "mojo", "precompile"]
    command += [str(sources), "-o", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as e:
        raise CompilationError(f"The Mojo compiler could not be started: {e}") from e
    if done.returncode != 0:
        raise CompilationError("The Mojo kernels could not be compiled.", done.stderr.strip())
