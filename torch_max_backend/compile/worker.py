"""Compiling a module in a process of its own, so that this one goes on undisturbed.

Run as ``python -m torch_max_backend.compile.worker MODULE ARTIFACT [LIBRARY ...]``: reads a MAX
module as MLIR bytecode and writes its artifact (MEF). The process lends itself to nothing else, so
its memory goes back to the system with it.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch_max_backend.compile.progress import progress
from torch_max_backend.compile.session import compile_slot
from torch_max_backend.errors import CompilationError

if TYPE_CHECKING:
    from max.graph import Module

# Lower than what serves meanwhile.
_NICENESS = 10

_running: set[subprocess.Popen[bytes]] = set()


def compile_elsewhere(module: Module, libraries: Sequence[Path], what: str) -> bytes:
    """The artifact of a module, compiled by a worker process of low priority.

    Raises:
        CompilationError: MAX's compiler refused it, or the worker died.
    """
    with tempfile.TemporaryDirectory(prefix="torch_max_backend-") as folder:
        source, target = Path(folder) / "module.mlirbc", Path(folder) / "artifact.mef"
        source.write_bytes(module.mlir_module.bytecode)
        command = [sys.executable, "-m", __name__, str(source), str(target)]
        command += [str(library) for library in libraries]
        with compile_slot(lock=False), progress(what):
            worker = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            _running.add(worker)
            try:
                _, said = worker.communicate()
            finally:
                _running.discard(worker)
        if worker.returncode != 0:
            text = said.decode(errors="replace").strip()
            raise CompilationError(
                f"MAX could not compile {what}.",
                f"  The compiling process ended with {worker.returncode}: {text[-2000:]}",
            )
        return target.read_bytes()


@atexit.register
def _stop() -> None:
    """Nobody waits for these any more."""
    for worker in list(_running):
        worker.kill()


def main(source: str, target: str, *libraries: str) -> None:
    """Compile the module in file ``source`` into file ``target``."""
    os.nice(_NICENESS)
    from max._core import Operation
    from max._mlir_context import default_mlir_context
    from max.graph import KernelLibrary, Module

    from torch_max_backend.compile.session import session

    KernelLibrary()  # registers MAX's dialects
    operation = Operation.from_bytecode(Path(source).read_bytes(), default_mlir_context())
    compiled = session().compile(Module(operation), custom_extensions=[Path(p) for p in libraries])
    compiled.export_mef(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
