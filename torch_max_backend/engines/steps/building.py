"""Shared libraries from Mojo sources, on machines without a C compiler too."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from torch_max_backend.errors import LibraryError
from torch_max_backend.process.temporary_folders import temporary_folder

# `mojo build` calls the `cc` on PATH only to link. This one hands the objects to Mojo's own lld.
_LINK = """\
import os, sys
arguments, given = [], iter(sys.argv[2:])
for word in given:
    if word == "-Xlinker":
        arguments.append(next(given))
    elif word.startswith("-Wl,"):
        arguments += word[4:].split(",")
    elif word != "-lm":  # in the process already
        arguments.append(word)
os.execv(sys.argv[1], ["ld.lld", *arguments])
"""
_TAIL = 40
# Functions of MAX's runtime: its threads, and devices that the shells only have a dummy of.
_OF_MAX = re.compile(rb"\0((?:KGEN_CompilerRT_)?AsyncRT_\w+)(?=\0)")


def build(
    main: Path,
    out: Path,
    include: Path,
    defines: Mapping[str, str],
    features: Sequence[str] = (),
    threads: int = 0,
) -> None:
    """Build a shared library.

    Args:
        main: The Mojo source.
        out: The library.
        include: Where packages that it imports are.
        defines: What `-D` defines.
        features: Features of the CPU to compile for, besides those that the compiler finds.
        threads: Of the compiler; 0 for as many as there are cores.

    Raises:
        LibraryError: The Mojo compiler is missing, or refused the source.
        OSError: A file could not be written.
    """
    mojo = Path(sysconfig.get_path("scripts")) / "mojo"
    command = [str(mojo) if mojo.is_file() else "mojo", "build", "--emit", "shared-lib"]
    command += [f"-j{threads}"]
    for name, value in defines.items():
        command += ["-D", f"{name}={value}"]
    command += [*_target(command[0], features), "-I", str(include), str(main), "-o", str(out)]
    with temporary_folder(".linker-", out.parent) as folder:
        _write_linker(folder)
        path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
        done = _run(command, PATH=path)
    if done.returncode != 0 or not out.is_file():
        raise LibraryError(
            f"The Mojo compiler could not build {out.name} (exit status {done.returncode}).",
            _tail(done.stderr),
        )
    if calls := sorted({name.decode() for name in _OF_MAX.findall(out.read_bytes())}):
        raise LibraryError(
            f"{out.name} calls MAX's runtime, which only works inside of a MAX graph: "
            + ", ".join(calls)
        )


def _run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the Mojo compiler.

    Raises:
        LibraryError: It could not be started.
    """
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace",
            env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as e:
        raise LibraryError(
            f"The Mojo compiler could not be started: {e}",
            "Install the packages `max` and `mojo-compiler` in this environment.",
        ) from e


@cache
def _target(mojo: str, features: Sequence[str]) -> Sequence[str]:
    """The options that add features to those that the compiler finds. It takes some CPUs for older
    ones."""
    if not features:
        return []
    done = _run([mojo, "build", "--print-effective-target"])
    found = re.search(r"--target-features (\S+)", done.stdout)
    listed = found[1].split(",") if found else []
    kept = [feature for feature in listed if feature[1:] not in features]
    return ["--target-features", ",".join([*kept, *(f"+{feature}" for feature in features)])]


def _write_linker(folder: Path) -> None:
    """Make a ``cc`` in a folder; without Mojo's lld there is none, and that of PATH is called."""
    package = find_spec("modular")
    places = package.submodule_search_locations if package else None
    lld = Path(places[0]) / "bin" / "lld" if places else None
    if lld is None or not lld.is_file() or sys.platform != "linux":
        return
    (folder / "link.py").write_text(_LINK)
    # A shell script, since "#!" takes no long path and none with spaces.
    words = [sys.executable, "-SE", str(folder / "link.py"), str(lld)]
    cc = folder / "cc"
    cc.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    cc.chmod(0o700)


def _tail(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and "Crashpad" not in line]
    return "\n".join(lines[-_TAIL:])


def runtime_libraries() -> Sequence[Path]:
    """The libraries of Mojo that a library needs, in the order to load them in.

    Raises:
        LibraryError: They are missing.
    """
    package = find_spec("modular")
    for place in (package.submodule_search_locations if package else None) or ():
        found = [
            Path(place) / "lib" / f"{name}.{'dylib' if sys.platform == 'darwin' else 'so'}"
            for name in ("libKGENCompilerRTShared", "libAsyncRTMojoBindings")
        ]
        if all(path.is_file() for path in found):
            return found
    raise LibraryError(
        "The libraries that Mojo's code needs are missing.",
        "Install the package `mojo-compiler` in this environment.",
    )
