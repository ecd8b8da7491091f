"""Architectures one after the other in this process; what became of each as a line of JSON.

python -m benchmarks.sweep.one inference|training|sizes|bfloat16 NAME ...
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.sweep.inference import bfloat16, inference
from benchmarks.sweep.sizes import sizes
from benchmarks.sweep.training import training

SECONDS = 600
PARTS = {"inference": inference, "training": training, "sizes": sizes, "bfloat16": bfloat16}


class _Late(Exception):
    """A model has taken too long."""


def examine(name: str, prepare: Callable[[str], Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """What becomes of an architecture.

    Args:
        name: Its name.
        prepare: One of ``PARTS``: calls it in eager PyTorch and returns what compiles and compares
            it.

    Returns:
        ``skipped``: why there is no small model of it, if so. Otherwise what comparing tells, or
        ``error`` (a word of what was raised), ``operators`` that were taken, ``eager`` (those that
        torch ran, by name), ``breaks``, ``graphs``, ``seconds``.
    """
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    start = time.perf_counter()
    try:
        compare = prepare(name)
    except _Late:
        return {"name": name, "skipped": "too slow in eager PyTorch"}
    except Exception as e:
        return {"name": name, "skipped": f"{type(e).__name__}: {e}".splitlines()[0][:160]}
    made, found = time.perf_counter() - start, {"name": name, "right": False}
    start = time.perf_counter()
    counted = counters["max_backend"]
    try:
        found |= compare()
    except _Late:
        found["error"] = f"more than {SECONDS} s"
    except Exception as e:
        found["error"] = f"{type(e).__name__}: {e}"[:300]
    eager = {k.removeprefix("eager "): v for k, v in counted.items() if k.startswith("eager ")}
    eager.pop("operators", None)
    return found | {
        "operators": counted["operators"],
        "eager": eager,
        "eager_operators": counted["eager operators"],
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "reasons": [reason.splitlines()[0][:100] for reason in counters["graph_break"]],
        "made_s": round(made, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    from transformers.utils import logging

    logging.set_verbosity_error()

    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    prepare = PARTS[sys.argv[1]]
    for name in sys.argv[2:]:
        print(json.dumps({"begins": name}), flush=True)
        signal.alarm(SECONDS)
        try:
            found = examine(name, prepare)
        except _Late:
            found = {"name": name, "right": False, "error": f"more than {SECONDS} s"}
        finally:
            signal.alarm(0)
        print(json.dumps(found), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
