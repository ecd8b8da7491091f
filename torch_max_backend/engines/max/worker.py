"""Compiling a module in a process of its own, so that this one goes on undisturbed.

Run as ``python -m torch_max_backend.engines.max.worker PARENT YIELDS TARGET MODULE ARTIFACT
[LIBRARY ...]``: reads a MAX module as MLIR bytecode and writes its artifact (MEF), for TARGET or
(empty) this machine. The process lends itself to nothing else, so its memory goes back to
the system with it. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch_max_backend.cache.targets import Target
from torch_max_backend.errors import CompilationError
from torch_max_backend.process import fork_safety
from torch_max_backend.process.compile_slots import compile_slot
from torch_max_backend.process.progress import progress
from torch_max_backend.process.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from max.graph import Module

_PR_SET_PDEATHSIG = 1

# Beside eager PyTorch on all cores, 10 costs it 15 % and 19 costs it 2 %; SCHED_BATCH and
# SCHED_IDLE do no better. The compile takes the longer for it.
_NICENESS = 19

_running: set[subprocess.Popen[bytes]] = set()
_lock = fork_safety.lock()
_ending = False


def ending() -> bool:
    """Whether this process is about to end, so that what is being compiled is of no use."""
    return _ending


def compile_elsewhere(
    module: Module,
    libraries: Sequence[Path],
    what: str,
    operators: int | None = None,
    *,
    background: bool = True,
    target: Target | None = None,
) -> bytes:
    """The artifact of a module, compiled by a worker process.

    Args:
        module: The module.
        libraries: The kernel libraries that it needs.
        what: What it is, for messages.
        operators: How many operators it has, for the progress line.
        background: The worker yields the processor to whatever else wants it.
        target: The machine to compile for, if it is not this one.

    Raises:
        CompilationError: MAX's compiler refused it, or the worker died, or there is no room for
            temporary files.
    """
    try:
        return _compiled(module, libraries, what, operators, background, target)
    except OSError as e:
        raise CompilationError(
            f"{what} could not be compiled in a process of its own: {e}",
            "Make room for temporary files, or set TMPDIR to a folder on another disk.",
        ) from e


def _compiled(
    module: Module,
    libraries: Sequence[Path],
    what: str,
    operators: int | None,
    background: bool,
    target: Target | None,
) -> bytes:
    with temporary_folder() as folder:
        source, artifact = folder / "module.mlirbc", folder / "artifact.mef"
        source.write_bytes(module.mlir_module.bytecode)
        command = [sys.executable, "-m", __name__, str(os.getpid()), str(int(background))]
        command += [str(target or ""), str(source), str(artifact), *map(str, libraries)]
        with compile_slot(lock=False), progress(what, operators):
            worker = _start(command, what)
            try:
                _, said = worker.communicate()
            except BaseException:
                worker.kill()  # Control-C: nobody waits for it any more
                worker.wait()
                raise
            finally:
                with _lock:
                    _running.discard(worker)
        if worker.returncode != 0:
            text = said.decode(errors="replace").strip()
            raise CompilationError(
                f"MAX could not compile {what}.",
                f"  The compiling process ended with {worker.returncode}: {text[-2000:]}",
                "Set TORCH_MAX_BACKEND_VERBOSE=1 to see the graph. A process ended by -9 was "
                "killed, mostly for want of memory: set TORCH_MAX_BACKEND_COMPILE_JOBS=1.",
            )
        return artifact.read_bytes()


def _start(command: Sequence[str], what: str) -> subprocess.Popen[bytes]:
    with _lock:
        if _ending:
            raise CompilationError(f"{what} is not compiled: this process is ending.")
        worker = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _running.add(worker)
    return worker


@atexit.register
def end_workers() -> None:
    """Kill the workers and start no further ones: nobody waits for them any more."""
    global _ending
    with _lock:
        _ending = True
        for worker in _running:
            worker.kill()


@fork_safety.in_child
def _in_child() -> None:
    """A forked child has no workers; those of its parent are not its to end."""
    _running.clear()


def _end_with(parent: int) -> None:
    """Have the system kill this process when its parent's thread that waits for it ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before


def _pretend(target: Target) -> None:
    """Have MAX take this machine for another, before it makes its first device."""
    from max import driver

    if target.is_gpu:
        driver.set_virtual_device_api(target.api)
        driver.set_virtual_device_target_arch(target.architecture)
        driver.set_virtual_device_count(1)
    if target.level:
        driver.set_virtual_cpu_target(target.level)


def main(
    parent: str, yields: str, target: str, source: str, artifact: str, *libraries: str
) -> None:
    """Compile the module in file ``source`` into file ``artifact``."""
    _end_with(int(parent))
    if yields == "1":
        os.nice(_NICENESS)
    elsewhere = Target.written(target)
    if elsewhere is not None:
        _pretend(elsewhere)
    from max.graph import KernelLibrary, Module

    from torch_max_backend.compat.max_graphs import Operation, default_mlir_context
    from torch_max_backend.engines.max.session import session

    KernelLibrary()  # registers MAX's dialects
    operation = Operation.from_bytecode(Path(source).read_bytes(), default_mlir_context())
    compiled = session().compile(Module(operation), custom_extensions=[Path(p) for p in libraries])
    compiled.export_mef(artifact)


def _leave() -> None:
    """End this process without ending its interpreter: a thread of MAX that comes back to Python
    while that goes aborts the process, though all its work is done."""
    atexit._run_exitfuncs()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
    _leave()
