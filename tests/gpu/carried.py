"""Rows of the conformance tables, compiled for a GPU that is elsewhere, and run there.

    python -m tests.gpu.carried save FOLDER sm_90a    # half an hour on two cores
    python -m tests.gpu.carried check FOLDER          # a minute on the GPU, without a compiler

One sample of each row, static. What it is compared with, eager PyTorch on CPU, is carried along.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from tests.conformance.closeness import difference
from tests.conformance.entry import Entry
from tests.conformance.program import Program, trace_program
from tests.conformance.reference import truth
from tests.conformance.samples import OPS, programs
from tests.conformance.tables import SHARES, share
from torch_max_backend import UnsupportedOperatorError
from torch_max_backend.ahead_of_time.elsewhere import move
from torch_max_backend.cache.targets import Target
from torch_max_backend.engines.max.module import build_module
from torch_max_backend.engines.max.worker import compile_elsewhere


def save(rows: Sequence[Entry], target: Target, file: Path) -> list[str]:
    """Compile rows into a file; returns those that cannot be, with the reason."""
    refused = []
    made = []
    for row in rows:
        program = _sample(row)
        if program is None:
            continue
        try:
            program.trace = trace_program(program, move)
            made.append(program)
        except UnsupportedOperatorError as e:
            refused.append(f"{program.name}: {e}")
    traces = [p.trace for p in made if p.trace is not None]
    module, libraries = build_module(traces)
    what = f"{len(made)} programs for {target.architecture}"
    artifact = compile_elsewhere(module, libraries, what, background=False, target=target)
    records = [
        {
            "name": p.name,
            "tensors": [t.detach() for t in p.tensors],
            "signature": t.signature,
            "constants": dict(t.constants()),
            "eager": p.eager(),
            "truth": truth(p),
        }
        for p, t in zip(made, traces, strict=True)
    ]
    torch.save({"artifact": artifact, "records": records}, file)
    return refused


def _sample(row: Entry) -> Program | None:
    """One program of a row; ``None`` if torch has none, or it is to be refused."""
    if row.name not in OPS:
        return None
    dtype = next(d for d in row.dtypes if d in OPS[row.name].dtypes)
    found = list(programs(row.name, dtype, limit=row.samples))
    refused = found and any(found[-1].name.startswith(prefix) for prefix in row.refused)
    return found[-1] if found and not refused else None


def check(file: Path) -> Iterator[tuple[str, str | None]]:
    """Run what a file holds; the name of each program, and what is wrong."""
    from torch_max_backend.engines.max.executable import Executable
    from torch_max_backend.engines.max.loading import load_serialized
    from torch_max_backend.runtime.complex_adapter import with_pairs

    kept = torch.load(file, weights_only=False)
    models = load_serialized(kept["artifact"])
    for model, record in zip(models, kept["records"], strict=True):
        signature = record["signature"]
        constants = {name: t.cuda() for name, t in record["constants"].items()}
        function = with_pairs(Executable(model, signature, constants), signature)
        try:
            found = [t.cpu() for t in function([t.cuda() for t in record["tensors"]])]
            wrong = difference(found, record["eager"], record["truth"])
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"
        yield record["name"], wrong


def main() -> None:
    """Save, or check and end with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("save", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("architecture", nargs="?", default="sm_90a")
    given = parser.parse_args()
    if given.what == "save":
        given.folder.mkdir(parents=True, exist_ok=True)
        target = Target.of(given.architecture)
        for k in range(SHARES):
            for refused in save(share(k), target, given.folder / f"{k}.pt"):
                print(f"not compiled: {refused}", flush=True)
        return
    found = [result for file in sorted(given.folder.glob("*.pt")) for result in check(file)]
    wrong = [(name, reason) for name, reason in found if reason]
    for name, reason in wrong:
        print(f"{name}: {reason}")
    print(f"{len(found) - len(wrong)} of {len(found)} agree")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
