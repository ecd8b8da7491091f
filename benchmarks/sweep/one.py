"""Architectures one after the other in this process; what became of each as a line of JSON."""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.matrix.outputs import errors, in_float64, stirred, tensors
from benchmarks.sweep.catalog import model_of

SECONDS = 240


class _Late(Exception):
    """A model has taken too long."""


def examine(name: str) -> dict[str, Any]:
    """What becomes of an architecture.

    Returns:
        ``skipped``: why there is no small model of it, if so. Otherwise ``right``, ``wrong`` (what
        is), ``ties`` (what differs in its order only), ``torch`` (what differs from eager in the
        same way with ``aot_eager``), ``error`` (a word of what was raised), ``operators`` that were
        taken, ``eager`` (those that torch ran, by name), ``breaks``, ``graphs``, ``seconds``.
    """
    from torch._dynamo.utils import counters

    from torch_max_backend import max_backend

    torch._dynamo.reset()
    counters.clear()
    start = time.perf_counter()
    try:
        model, inputs = model_of(name)
        stirred(model)
        torch.manual_seed(1)
        with torch.no_grad():
            expected = tensors(model(**inputs))
    except _Late:
        return {"name": name, "skipped": "too slow in eager PyTorch"}
    except Exception as e:
        return {"name": name, "skipped": f"{type(e).__name__}: {e}".splitlines()[0][:160]}
    made, found = time.perf_counter() - start, {"name": name, "right": False}
    start = time.perf_counter()
    counted = counters["max_backend"]
    try:
        # What has no step is torch's: the numbers below are of steps alone. What a cache answers is
        # not counted.
        options = {"engine": "steps", "fallback": "eager", "cache": False}
        compiled = torch.compile(model, backend=max_backend, options=options, dynamic=False)
        with torch.no_grad():
            for _ in range(2):
                torch.manual_seed(1)
                ours = tensors(compiled(**inputs))
        again = errors(ours, expected, None)
        if again.wrong:
            again = errors(ours, expected, in_float64(model, inputs))
        found |= {"right": not again.wrong, "wrong": again.wrong}
        if again.wrong and not errors(_sorted(ours), _sorted(expected), None).wrong:
            found |= {"right": True, "ties": again.wrong}
        elif again.wrong and not errors(ours, _traced(model, inputs), None).wrong:
            found |= {"right": True, "torch": again.wrong}
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


def _sorted(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Values without their order, which a choice of the best decides where several nearly tie."""
    return [v.flatten().sort().values for v in values if v.is_floating_point()]


def _traced(model: torch.nn.Module, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
    """What a model returns when torch.compile traces it and torch runs the graph: some models
    compute something else while they are traced."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    with torch.no_grad():
        torch.manual_seed(1)
        return tensors(compiled(**inputs))


def main() -> None:
    warnings.simplefilter("ignore")
    from transformers.utils import logging

    logging.set_verbosity_error()

    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    for name in sys.argv[1:]:
        print(json.dumps({"begins": name}), flush=True)
        signal.alarm(SECONDS)
        try:
            found = examine(name)
        except _Late:
            found = {"name": name, "right": False, "error": f"more than {SECONDS} s"}
        finally:
            signal.alarm(0)
        print(json.dumps(found), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
