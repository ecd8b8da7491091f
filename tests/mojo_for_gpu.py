"""``python -m tests.mojo_for_gpu cuda sm_90a OUT [FAMILY ...]``: compile the Mojo kernels for a GPU
that is not here, each family of ``tests/gpu/kernels/`` in graphs of one module.

A process of its own for each target: MAX fixes the target when it makes its first device.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

from max import driver
from max.dtype import DType
from max.graph import DeviceRef, Graph, Module, TensorType

from tests.gpu import kernels

FAMILIES = [m.name for m in pkgutil.iter_modules(kernels.__path__) if m.name != "support"]


def main(api: str, architecture: str, out: str, *names: str) -> None:
    driver.set_virtual_device_api(api)
    driver.set_virtual_device_target_arch(architecture)
    driver.set_virtual_device_count(1)

    from torch_max_backend.compile.kernels import BASE, kernel_library_path
    from torch_max_backend.compile.module import compile_module, serialized

    families = [import_module(f"{kernels.__name__}.{name}") for name in names or FAMILIES]
    libraries = [
        kernel_library_path(n) for n in (BASE, *(n for f in families for n in f.LIBRARIES))
    ]
    module = Module()
    for build in (b for f in families for b in f.BUILDERS):
        x = TensorType(DType.float32, [2, 3, 1, 8, 10], DeviceRef.GPU())
        name = build.__name__
        with Graph(name, input_types=[x], module=module, custom_extensions=libraries) as graph:
            graph.output(*build(graph.inputs[0].tensor))
    Path(out).write_bytes(serialized(compile_module(module, libraries, f"for {architecture}")))
    sys.stdout.flush()
    os._exit(0)  # A process with virtual devices aborts in its exit handlers.


if __name__ == "__main__":
    main(*sys.argv[1:])
