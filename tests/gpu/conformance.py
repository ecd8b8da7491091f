"""``python -m tests.gpu.conformance --tasks FILE``: rows of the conformance tables, on a GPU.

FILE is a JSON list of rows' names. One sample of each, compiled as one MAX module; prints "# " and
the name before a row is run, and one line of JSON after it. With ``--device cpu`` the same by MAX's
engine on CPU.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from tests.conformance.entry import Entry
from tests.conformance.modules import compile_module_of
from tests.conformance.program import Program
from tests.conformance.reference import complaint
from tests.conformance.samples import OPS, programs
from tests.conformance.tables import ENTRIES
from torch_max_backend import UnsupportedOperatorError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    rows = {entry.name: entry for entry in ENTRIES}
    asked = [rows[name] for name in json.loads(given.tasks.read_text()) if name in OPS]
    samples = {entry.name: _sample(entry, given.device) for entry in asked}
    compile_module_of([p for p in samples.values() if p is not None])
    for entry in asked:
        print(f"# {json.dumps(entry.name)}", flush=True)
        failure = _failure(entry, samples[entry.name])
        print(json.dumps({"row": entry.name, "failure": failure}), flush=True)


def _sample(entry: Entry, device: str) -> Program | None:
    """One program of a row; ``None`` if torch has no sample for its first dtype."""
    dtype = next(d for d in entry.dtypes if d in OPS[entry.name].dtypes)
    found = list(programs(entry.name, dtype, limit=entry.samples, device=device))
    return found[-1] if found else None


def _failure(entry: Entry, program: Program | None) -> str | None:
    if program is None:
        return None
    refused = any(program.name.startswith(prefix) for prefix in entry.refused)
    if refused and isinstance(program.error, UnsupportedOperatorError):
        return None
    found = complaint(program)
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # a kernel's failure belongs to the row that started it
    return found


if __name__ == "__main__":
    main()
