"""What depth costs: the cold compile of GPT-2 with any number of layers.

Run as ``python -m benchmarks.processes.depth LAYERS [LAYERS ...]``: each model is compiled in a
process of its own with empty caches. Prints one line of JSON for each: CPU seconds of the whole
first call (with Dynamo's tracing) and of the backend's part, and the wall seconds of Python that
the backend spends before MAX compiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.processes.first_call import compiled, cpu_seconds


def measure(layers: int) -> dict[str, Any]:
    """Compile one model in this process, whose caches are empty."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from torch_max_backend import backend, profile

    spent = 0.0
    compile_graph = backend.compile_graph

    def timed(*args: Any) -> Any:
        nonlocal spent
        before = cpu_seconds()
        try:
            return compile_graph(*args)
        finally:
            spent += cpu_seconds() - before

    backend.compile_graph = timed
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval()
    tokens = torch.randint(4, 50257, (1, 128))
    with torch.no_grad():
        function = compiled(model, "max")
        before = cpu_seconds()
        function(input_ids=tokens)
        total = cpu_seconds() - before
    [graph] = profile.graphs()
    stages = graph.clock.seconds
    return {
        "layers": layers,
        "first_call_cpu_s": round(total, 2),
        "backend_cpu_s": round(spent, 2),
        "python_s": round(sum(stages[s] for s in ("analyse", "key", "build")), 3),
    }


def main(*arguments: str) -> None:
    """The command line; see the top of this file."""
    if arguments[0] == "--here":
        print(json.dumps(measure(int(arguments[1]))))
        return
    for layers in arguments:
        with tempfile.TemporaryDirectory() as caches:
            places = ("TORCH_MAX_BACKEND_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MODULAR_CACHE_DIR")
            environment = {
                **os.environ,
                **{place: os.path.join(caches, place) for place in places},
                "TORCH_MAX_BACKEND_PROFILE": "1",
            }
            module = "benchmarks.processes.depth"
            command = [sys.executable, "-m", module, "--here", layers]
            subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
