"""One process, one framework, one network: what the first training step costs.

Run as ``python -m torch_max_backend.bench.first_step CASE FRAMEWORK [--forward]``; prints one line
of JSON: seconds of wall and CPU time (children included) from the first call of the compiled loss
to its gradients, or with ``--forward`` to the loss alone, under ``torch.no_grad``; the peak of the
process's resident memory before and after that and ten further steps, in bytes; and the loss.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext

import torch

from torch_max_backend.bench.first_call import compiled, cpu_seconds, peak_bytes
from torch_max_backend.bench.trainable import CASES

_FURTHER = 10


def main(name: str, framework: str, forward_alone: bool) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    network = case.build()
    chance = torch.Generator().manual_seed(1)
    batch = case.batch(case.size, chance)

    loss_of = compiled(lambda *given: case.loss(network, *given), framework)

    def step() -> float:
        with torch.no_grad() if forward_alone else nullcontext():
            loss = loss_of(*batch)
        if not forward_alone:
            loss.backward()
        return loss.item()

    before = peak_bytes()
    # Otherwise Dynamo leaves LSTMs to eager.
    with torch._dynamo.config.patch(allow_rnn=True):
        wall, cpu = time.perf_counter(), cpu_seconds()
        loss = step()
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        for _ in range(_FURTHER):
            step()
    report = {"wall_s": wall, "cpu_s": cpu, "loss": loss}
    print(json.dumps(report | {"peak_before_bytes": before, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:3], "--forward" in sys.argv)
