"""``python -m tests.mojo_for_gpu cuda sm_90a OUT [NAME ...]``: compile the Mojo kernels for a GPU
that is not here, in graphs of one module: all, or those of families of ``tests/gpu/kernels/``
(``order``) and of single graphs (``order.searched``). All take 10 to 15 minutes of one core.

A process of its own for each target: MAX fixes the target when it makes its first device.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from max import driver
from max.dtype import DType
from max.graph import DeviceRef, Graph, Module, TensorType, TensorValue

from tests.gpu import kernels


def all_graphs() -> dict[str, tuple[Callable[[TensorValue], list[TensorValue]], Sequence[str]]]:
    """What builds each graph, and the libraries of its family."""
    found = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        family = import_module(f"{kernels.__name__}.{module.name}")
        for build in getattr(family, "BUILDERS", ()):
            found[f"{module.name}.{build.__name__}"] = (build, family.LIBRARIES)
    return found


def main(api: str, architecture: str, out: str, *names: str) -> None:
    driver.set_virtual_device_api(api)
    driver.set_virtual_device_target_arch(architecture)
    driver.set_virtual_device_count(1)

    from tests.support.module_cache import artifact_of
    from torch_max_backend.registry.kernel_sources import BASE, kernel_library_path

    graphs = all_graphs()
    wanted = [n for n in graphs if not names or n in names or n.split(".")[0] in names]
    needed = {BASE, *(library for n in wanted for library in graphs[n][1])}
    libraries = [kernel_library_path(library) for library in sorted(needed)]
    module = Module()
    for name in wanted:
        x = TensorType(DType.float32, [2, 3, 1, 8, 10], DeviceRef.GPU())
        build, label = graphs[name][0], name.replace(".", "_")
        with Graph(label, input_types=[x], module=module, custom_extensions=libraries) as graph:
            graph.output(*build(graph.inputs[0].tensor))
    Path(out).write_bytes(artifact_of(module, libraries, f"for {architecture}", architecture))
    sys.stdout.flush()
    os._exit(0)  # A process with virtual devices aborts in its exit handlers.


if __name__ == "__main__":
    main(*sys.argv[1:])
