"""What the converter and the planner make of a fixed set of networks, as text.

    python -m tests.graph_texts FOLDER

Writes the MAX graph and the step table of each network's forward and backward graph to a file of
its own in FOLDER. Nothing is compiled. A change that claims to be a refactor leaves these files as
they are: write them before and after, and compare the folders with ``diff -r``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule


class _Collected:
    """Takes the graphs of AOTAutograd instead of compiling them."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def inference(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        from torch_max_backend.driver.autograd_cache import MaxOutputCode

        self.graphs.append(module)
        return MaxOutputCode.unstored(lambda arguments: list(module(*arguments)))

    forward = backward = inference


def texts(run: Callable[[Callable[..., Any]], Any]) -> list[tuple[str, str]]:
    """The MAX graph and the step table of each graph that is compiled, forward ones first, when
    ``run`` is called with a backend."""
    from torch_max_backend.backend import trace
    from torch_max_backend.driver.passes import own_modes, prepare
    from torch_max_backend.engines.max.module import build_module
    from torch_max_backend.engines.steps.plan_text import text_of
    from torch_max_backend.engines.steps.planned import planned
    from torch_max_backend.options import Options

    options, collected = Options(), _Collected()

    def backend(module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return trace(module, example_inputs, options, collected, False)

    torch._dynamo.reset()
    run(backend)
    found = []
    for module in collected.graphs:
        with own_modes():
            made = prepare(module, options)
            found.append((str(build_module([made])[0].mlir_module), text_of(planned(made))))
    return found


def main(folder: Path) -> None:
    from benchmarks.processes.trainable import CASES

    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        torch.manual_seed(0)
        model = case.build()
        batch = case.batch(case.size, torch.Generator().manual_seed(0))

        def run(backend: Any, model: Any = model, batch: Any = batch, case: Any = case) -> None:
            compiled = torch.compile(model, backend=backend, dynamic=False)
            case.loss(compiled, *batch).backward()

        for k, (graph, table) in enumerate(texts(run)):
            (folder / f"{name}.{k}.max.txt").write_text(graph)
            (folder / f"{name}.{k}.steps.txt").write_text(table)
        print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
