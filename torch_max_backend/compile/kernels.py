"""The package's Mojo kernels, precompiled once per compiler version and content."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from torch_max_backend import environment
from torch_max_backend.errors import CompilationError
from torch_max_backend.private_dir import private_dir


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
    digest = hashlib.sha256(version("mojo-compiler").encode())
    for path in sorted(kernel_sources().rglob("*.mojo")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def kernel_library_name() -> str:
    """The name of the file that holds the precompiled kernels."""
    # MAX caches the analysis of a library by path, so the name carries the content.
    return f"kernels_{kernel_digest()[:24]}.mojoc"


@cache
def kernel_library_path() -> Path:
    """The precompiled kernels (a ``.mojoc``); precompiles them the first time.

    Concurrent processes each write into a folder of their own and rename, so none sees a partial
    file.

    Raises:
        CompilationError: The Mojo compiler refused the sources.
    """
    folder = private_dir("kernels") if environment.cache_enabled() else None
    folder = folder or Path(tempfile.mkdtemp(prefix="torch_max_backend-"))
    target = folder / kernel_library_name()
    if target.is_file():
        return target
    # The compiled module is named after its file, so only the folder may be temporary.
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        _precompile(Path(partial) / target.name)
        os.replace(Path(partial) / target.name, target)
    return target


def _precompile(out: Path) -> None:
    mojo = Path(sysconfig.get_path("scripts")) / "mojo"
    command = [str(mojo) if mojo.is_file() else "mojo", "precompile"]
    command += [str(kernel_sources()), "-o", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as e:
        raise CompilationError(f"The Mojo compiler could not be started: {e}") from e
    if done.returncode != 0:
        raise CompilationError("The Mojo kernels could not be compiled.", done.stderr.strip())
