"""What a process costs between calls: CPU and wake-ups of its threads after one call on 8x8.

Run as ``python -m benchmarks.processes.idle SECONDS [--prompt-timers]``; with the flag, MAX's
thread keeps its prompt timers. Prints one line of JSON: percent of a core, wake-ups a second.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from torch_max_backend import max_backend
from torch_max_backend.engines.max import timers


def _wakeups() -> int:
    """Voluntary context switches of all threads of this process (Linux)."""
    states = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
    return sum(int(state.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for state in states)


def main(seconds: float, prompt: bool) -> None:
    """The command line; see the top of this file."""
    timers._executed = prompt
    x = torch.ones(8, 8)
    options = {"fallback": "error"}
    torch.compile(lambda x, y: x + y, backend=max_backend, options=options)(x, x)
    time.sleep(1)
    wakeups, cpu = _wakeups(), time.process_time()
    time.sleep(seconds)
    wakeups, cpu = _wakeups() - wakeups, time.process_time() - cpu
    print(json.dumps({"core_percent": 100 * cpu / seconds, "wakeups": wakeups / seconds}))


if __name__ == "__main__":
    main(float(sys.argv[1]), "--prompt-timers" in sys.argv)
