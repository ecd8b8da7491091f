"""From how many operators on a MAX graph between operators of eager PyTorch pays.

Run as ``python -m benchmarks.processes.least [--seconds S]``: prints Markdown, microseconds of a
copy in eager PyTorch followed by a chain of elementwise operators, in eager PyTorch or as one MAX
graph, with two threads. The defaults of the option ``min_ops`` come from here.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.processes.operators import Case
from benchmarks.processes.steady import alternate

SIZES = (64, 4096, 65536, 1048576)
LENGTHS = (1, 2, 4, 6, 10, 16)
# Cheap ones, as most operators between refused ones are.
_STEPS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x * 1.01,
    lambda x: x + 0.1,
    torch.relu,
    lambda x: 1.0 - x,
    torch.abs,
)


def chain(length: int) -> Callable[[Tensor], Tensor]:
    """That many elementwise operators, one after the other."""

    def run(x: Tensor) -> Tensor:
        for k in range(length):
            x = _STEPS[k % len(_STEPS)](x)
        return x

    return run


def compiled(functions: dict[str, Case]) -> dict[str, Callable[[], Any]]:
    """Each function applied to its arguments, compiled together; those refused are left out."""
    from torch.fx.experimental.proxy_tensor import make_fx

    import torch_max_backend.ops  # noqa: F401
    from torch_max_backend.compat.tracing import (
        FunctionalTensorMode,
        dispatch_functionalize,
        enable_python_dispatcher,
        pytree,
    )
    from torch_max_backend.driver.passes import prepare
    from torch_max_backend.engines.max.executable import Executable
    from torch_max_backend.engines.max.loading import load_models
    from torch_max_backend.engines.max.module import build_module, compile_module
    from torch_max_backend.errors import UnsupportedError
    from torch_max_backend.graph.decompositions.table import decomposition_table
    from torch_max_backend.graph.dispatch_override import whole

    table, traces = decomposition_table(), {}
    for name, (function, arguments) in functions.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaves = dispatch_functionalize(
                lambda *a, f=function: pytree.tree_leaves(f(*a)), FunctionalTensorMode()
            )
            with enable_python_dispatcher(), whole():
                module = make_fx(leaves, table, tracing_mode="fake")(*arguments)
            module.graph.eliminate_dead_code()
        try:
            traces[name] = prepare(module)
        except UnsupportedError as e:
            print(f"# {name}: {e}")
    built, libraries = build_module(list(traces.values()))
    models = load_models(compile_module(built, libraries, f"{len(traces)} operators"))
    calls: dict[str, Callable[[], Any]] = {}
    for (name, trace), model in zip(traces.items(), models, strict=True):
        run, arguments = Executable(model, trace.signature, trace.constants()), functions[name][1]
        calls[name] = lambda run=run, a=arguments: run(list(a))
    return calls


def main() -> None:
    """The command line; see the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each size and length")
    given = parser.parse_args()
    torch.set_num_threads(2)
    functions: dict[str, Case] = {
        f"{size} {length}": (chain(length), [torch.randn(size)])
        for size in SIZES
        for length in LENGTHS
    }
    calls = compiled(functions)
    print("| elements | operators | eager us | max us | max/eager |\n|---|---|---|---|---|")
    for name, max_call in calls.items():
        function, (x,) = functions[name]
        source = torch.randn_like(x)

        def in_eager(function=function, x=x, source=source) -> None:
            x.copy_(source)
            function(x)

        def in_max(run=max_call, x=x, source=source) -> None:
            x.copy_(source)
            run()

        with torch.no_grad():
            found = alternate({"eager": in_eager, "max": in_max}, given.seconds)
        eager, ours = found["eager"] * 1e3, found["max"] * 1e3
        size, length = name.split()
        print(f"| {size} | {length} | {eager:.1f} | {ours:.1f} | {ours / eager:.2f} |", flush=True)


if __name__ == "__main__":
    main()
