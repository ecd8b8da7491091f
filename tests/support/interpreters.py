"""Python processes that have torch when they start: its import takes others four CPU seconds."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from pathlib import Path

_FORKSERVER = multiprocessing.get_context("forkserver")
# Seconds, far beyond what any of the processes takes on a busy machine.
_TIMEOUT = 1200
# torch, and what the first graph of a process imports of it: nothing of ours, and no thread.
_FORKSERVER.set_forkserver_preload(
    ["torch._dynamo", "torch._functorch.aot_autograd", "torch.fx.experimental.symbolic_shapes"]
)


def run_python(
    *command: str | Path, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python COMMAND…``, which begins with ``-c``, ``-m`` or a file's name, as a fork of a
    process that has torch.

    Variables that torch reads when it is imported are those of the caller's first call. A test
    of what an import does, or of options of Python, starts a Python of its own.

    Args:
        command: What follows ``python``; no options of Python but these two.
        environment: Of the process, or the caller's.
        folder: Which the process runs in, or the caller's.

    Raises:
        subprocess.TimeoutExpired: It does not end; it is killed.
    """
    arguments = [str(a) for a in command]
    with tempfile.TemporaryDirectory() as files:
        process = _FORKSERVER.Process(
            target=_main,
            args=(arguments, dict(environment or os.environ), str(folder or Path.cwd()), files),
        )
        process.start()
        process.join(_TIMEOUT)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(arguments, _TIMEOUT)
        out, err = (Path(files, name).read_text() for name in ("out", "err"))
    assert process.exitcode is not None
    return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


def _main(arguments: list[str], environment: dict[str, str], folder: str, files: str) -> None:
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(os.path.join(files, name), os.O_CREAT | os.O_WRONLY)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    gc.freeze()
    try:
        _run(arguments)
        status = 0
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    # As at a Python's end, which a fork does not come to.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(arguments: list[str]) -> None:
    where, *rest = arguments
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [p for p in paths if p and p not in sys.path]
    if where in ("-c", "-m"):
        what, *rest = rest
        sys.path.insert(0, os.getcwd() if where == "-m" else "")
        sys.argv = [where, *rest]
        if where == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
            return
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(what, "<string>", "exec"), vars(main))
        return
    sys.path.insert(0, str(Path(where).parent))
    sys.argv = arguments
    runpy.run_path(where, run_name="__main__")
