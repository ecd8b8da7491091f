"""From traces to a compiled MAX module."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from torch_max_backend.convert.converter import build_graph
from torch_max_backend.engines.max.session import session
from torch_max_backend.errors import CacheError, CompilationError
from torch_max_backend.graph.capability import fake_arguments
from torch_max_backend.graph.nested import every_node
from torch_max_backend.graph.trace import Trace
from torch_max_backend.process import interrupts
from torch_max_backend.process.compile_slots import build_lock, compile_slot
from torch_max_backend.process.progress import progress
from torch_max_backend.process.temporary_folders import temporary_folder
from torch_max_backend.registry.kernel_sources import BASE, kernel_library_path
from torch_max_backend.registry.lowerings import Library, registry

if TYPE_CHECKING:
    from max.engine import CompiledModel
    from max.graph import KernelLibrary, Module


_EXPRESSION = "Expressions are not (currently) allowed in function signatures"


@cache
def kernel_library(*paths: Path) -> KernelLibrary:
    """MAX's kernels and those of the libraries at ``paths``, for building graphs. Shared by all
    graphs: reading the packages costs a second or two."""
    from max.graph import KernelLibrary

    library = KernelLibrary()
    library.load_paths(paths)
    return library


def needed_kernels(trace: Trace) -> set[Library]:
    """The libraries of Mojo kernels that the lowerings of this graph call."""
    needed: set[Library] = {BASE} if trace.signature.bank else set()
    for node in every_node(trace.module):
        lowering = registry.get(node.target) if node.op == "call_function" else None
        if lowering is not None:
            needed.update(lowering.libraries(fake_arguments(node)))
    return needed


def kernel_libraries(traces: Sequence[Trace]) -> list[Path]:
    """The kernel libraries that compiling these graphs needs."""
    needed = set().union(*map(needed_kernels, traces))
    # Equal sources in two places are one library, which MAX refuses to load twice.
    return list(dict.fromkeys(map(kernel_library_path, sorted(needed, key=str))))


def build_module(traces: Sequence[Trace]) -> tuple[Module, list[Path]]:
    """One MAX module with a graph for each trace, named ``g0``, ``g1``, ... by position (MAX's own
    cache is blind to names), and the kernel libraries that compiling it needs."""
    from max.graph import Module

    libraries = kernel_libraries(traces)
    module = Module()
    with build_lock:
        for i, trace in enumerate(traces):
            build_graph(trace, f"g{i}", kernel_library(*libraries), module)
    return module, libraries


def compile_module(
    module: Module, libraries: Sequence[Path], what: str, operators: int | None = None
) -> CompiledModel:
    """Compile a module.

    Args:
        module: The module.
        libraries: The kernel libraries that it needs.
        what: What it is, for messages.
        operators: How many operators it has, for the progress line.

    Raises:
        CompilationError: MAX's compiler refused it; the message carries MAX's own.
    """
    with compile_slot(), progress(what, operators):
        compiled = None
        try:
            compiled = session().compile_async(module, custom_extensions=list(libraries))
            _wait(compiled)
            _return_memory()
            return compiled
        except Exception as e:
            raise CompilationError(
                f"MAX could not compile {what}.",
                f"  MAX says: {_deepest(e)}",
                "Set TORCH_MAX_BACKEND_VERBOSE=1 to see the graph; reduce it to the operator that "
                "fails and report that, or keep the region out with torch.compiler.disable.",
            ) from e
        except BaseException:
            # MAX compiles on, in threads that it would wait for at exit.
            interrupts.end_before(compiled._compiled.done if compiled else lambda: False)
            raise


def _wait(compiled: CompiledModel) -> None:
    """Wait until a module is compiled. MAX's own way to wait cannot be interrupted from the
    keyboard."""
    value = compiled._compiled
    while not value.done():
        time.sleep(0.002)
    error = value.exception()
    if error is not None:
        raise error


def without_calls(error: CompilationError, traces: Sequence[Trace]) -> bool:
    """Whether the traces may compile without subgraphs, and are to be built so from now on.

    MAX moves views of symbolic sizes from subgraphs to their callers and then refuses the
    expression that it finds in the subgraph's signature (26.7).
    """
    if _EXPRESSION not in str(error) or not any(t.calls for t in traces):
        return False
    for trace in traces:
        trace.calls = False
    return True


def _return_memory() -> None:
    """Give the compiler's freed heap back to the system: 0.4 GB of 1.8 after a cold compile."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def serialized(compiled: CompiledModel) -> bytes:
    """The artifact (MEF) of a compiled module.

    Raises:
        CacheError: MAX writes it to a file, and there can be no temporary one.
    """
    try:
        with temporary_folder() as folder:
            path = folder / "artifact.mef"
            compiled.export_mef(path)
            return path.read_bytes()
    except Exception as e:  # MAX's own if the disk is full
        raise CacheError(f"A compiled module could not be written to a file: {e}") from e


def _deepest(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip() or type(error).__name__
