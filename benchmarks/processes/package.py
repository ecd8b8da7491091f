"""How long a package takes to load in a new process, beside torch's AOTInductor package.

Run as ``python -m benchmarks.processes.package MODEL [FRAMEWORK...]``, frameworks being ``max``
and ``inductor`` (both by default). Exports the model once, with a batch of one and 128 tokens (or
an image), then loads it in three new processes, in turns. Prints a line of JSON for each framework:
seconds to export; medians of the seconds to import torch, this package, and MAX with its session,
to load, of the first and of the next call; the memory that loading and calling added; the largest
difference from eager relative to eager's largest value; and which heavy modules were imported.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.processes.models import MODELS, ModelCase

_RUNS = 3
_CHILD = """
import json, resource, sys, time

times, clock = {}, time.perf_counter

def lap(name):
    global start
    times[name] = clock() - start
    start = clock()

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

framework, path, data = sys.argv[1:]
start = clock()
import torch
lap("import_torch_s")
if framework == "max":
    import torch_max_backend
    lap("import_package_s")
    from max import driver, engine
    from torch_max_backend.engines.max.session import session
    session()
    lap("import_max_s")
else:
    import torch._inductor
    lap("import_package_s")
before = resident()
start = clock()
if framework == "max":
    loaded = torch_max_backend.load(path)
else:
    loaded = torch._inductor.aoti_load_package(path)
lap("load_s")
from safetensors.torch import load_file
given = load_file(data)
expected = given.pop("expected")
start = clock()
with torch.no_grad():
    actual = loaded(**given)
    lap("first_call_s")
    loaded(**given)
    lap("next_call_s")
times["added_bytes"] = resident() - before
times["error"] = ((actual - expected).abs().max() / expected.abs().max()).item()
heavy = ("torch._dynamo", "torch._inductor", "sympy", "transformers")
times["imported"] = [m for m in heavy if m in sys.modules]
print(json.dumps(times))
"""


class _Picked(torch.nn.Module):
    """A model that returns the one tensor to compare."""

    def __init__(self, model: torch.nn.Module, case: ModelCase) -> None:
        super().__init__()
        self.model = model
        self.case = case

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        return self.case.result(self.model(**inputs))


def _export(framework: str, model: torch.nn.Module, inputs: dict[str, Any], folder: Path) -> Path:
    if framework == "max":
        from torch_max_backend import export

        return export(model, (), inputs, path=folder / "max")
    from torch_max_backend.compat.inductor import aoti_compile_and_package

    with torch.no_grad():
        exported = torch.export.export(model, (), inputs)
    path = folder / "inductor.pt2"
    aoti_compile_and_package(exported, package_path=str(path))
    return path


def main(name: str, frameworks: list[str]) -> None:
    """The command line; see the top of this file."""
    from safetensors.torch import save_file

    case = MODELS[name]
    torch.manual_seed(0)
    model = _Picked(case.build(), case)
    inputs = case.inputs(1, 128)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with torch.no_grad():
            save_file({**inputs, "expected": model(**inputs)}, folder / "data")
        paths, seconds = {}, {}
        for framework in frameworks:
            start = time.perf_counter()
            paths[framework] = _export(framework, model, inputs, folder)
            seconds[framework] = time.perf_counter() - start
        found: dict[str, list[dict[str, Any]]] = {f: [] for f in frameworks}
        for _ in range(_RUNS):
            for framework in frameworks:
                command = [framework, str(paths[framework]), str(folder / "data")]
                done = subprocess.run(
                    [sys.executable, "-c", _CHILD, *command], capture_output=True, text=True
                )
                if done.returncode:
                    raise RuntimeError(done.stderr)
                found[framework].append(json.loads(done.stdout.splitlines()[-1]))
    for framework, runs in found.items():
        numbers = [k for k in runs[0] if k != "imported"]
        medians = {k: statistics.median(r[k] for r in runs) for k in numbers}
        report = {"framework": framework, "export_s": seconds[framework], **medians}
        print(json.dumps({**report, "imported": runs[0]["imported"]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["max", "inductor"])
