"""A decoded token where other processes compute on the same cores.

Run as ``python -m benchmarks.crowded [DTYPE [FRAMEWORK ...]]`` (``bfloat16``; ``steps``,
``inductor``, ``eager``; see ``benchmarks.processes.decode``). Prints a Markdown table: the median
milliseconds of a token beside no other process, beside one that computes on one thread without
OpenMP, beside one that runs the same in the same framework, and beside four that run eager PyTorch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PLAIN = "while True: pass"
_EAGER = """
import torch
x = torch.randn(256, 256)
while True:
    x = torch.softmax(x @ x * 0.01, -1) + torch.sin(x).exp() * 0.01
"""
# Seconds until the others compute, that a token is measured for, and that a twin computes.
_BEGIN, _SECONDS, _TWIN = 8, 8, 600


def _decode(framework: str, dtype: str, seconds: int) -> list[str]:
    module = "benchmarks.processes.decode"
    return [sys.executable, "-m", module, framework, dtype, str(seconds)]


@contextmanager
def _beside(commands: Sequence[Sequence[str]]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    them = [subprocess.Popen(command, stdout=quiet, stderr=quiet) for command in commands]
    try:
        time.sleep(_BEGIN if them else 0)
        yield
    finally:
        for process in them:
            process.kill()
            process.wait()


def main(dtype: str = "bfloat16", *frameworks: str) -> None:
    """The command line; see the top of this file."""
    frameworks = frameworks or ("steps", "inductor", "eager")
    crowds = {
        "none": lambda framework: [],
        "one without OpenMP": lambda framework: [[sys.executable, "-c", _PLAIN]],
        "one that does the same": lambda framework: [_decode(framework, dtype, _TWIN)],
        "four of eager PyTorch": lambda framework: [[sys.executable, "-c", _EAGER]] * 4,
    }
    for framework in frameworks:
        # What it compiles is kept.
        subprocess.run(_decode(framework, dtype, 1), check=True, capture_output=True)
    print("| other processes |", " | ".join(frameworks), "|")
    print("|---" * (1 + len(frameworks)) + "|")
    for name, others in crowds.items():
        row = [name]
        for framework in frameworks:
            with _beside(others(framework)):
                done = subprocess.run(
                    _decode(framework, dtype, _SECONDS), check=True, capture_output=True, text=True
                )
            row.append(f"{json.loads(done.stdout.splitlines()[-1])['median_ms']:.1f}")
        print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
