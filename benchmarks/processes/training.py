"""Training: the networks of ``trainable.py`` by eager PyTorch and by compilers, from one seed.

Run as ``python -m benchmarks.processes.training [CASE ...] [--steps N] [--frameworks F ...]``:
prints Markdown, for each case how far the mean loss of the last tenth of the steps is from eager's,
the seconds of the first step, and the milliseconds of a step. What is compiled is the loss, the
network in it, and the optimizer's step (AdamW); ``--eager-optimizer`` leaves that to eager. The
frameworks take turns of ten steps in one process, the first three of which are not timed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.processes.first_call import compiled
from benchmarks.processes.trainable import CASES, TrainingCase
from torch_max_backend.compat import dynamo

_TURN, _UNTIMED = 10, 3


@dataclass
class Run:
    """One network in training.

    Attributes:
        losses: Of each step.
        seconds: Of the first step, compiles included.
        times: Seconds of the steps that are timed.
    """

    step: Callable[[], Tensor]
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    times: list[float] = field(default_factory=list)

    def take(self, steps: int) -> None:
        """Take some steps; the loss is read after the clock."""
        for i in range(steps):
            start = time.perf_counter()
            loss = self.step()
            spent = time.perf_counter() - start
            if not self.losses:
                self.seconds = spent
            elif i >= _UNTIMED:
                self.times.append(spent)
            self.losses.append(loss.item())

    @property
    def final(self) -> float:
        """The mean loss of the last tenth of the steps."""
        return statistics.fmean(self.losses[-max(1, len(self.losses) // 10) :])


def started(case: TrainingCase, framework: str, eager_optimizer: bool = False) -> Run:
    """A run of a case, the same network and data in each framework."""
    torch.manual_seed(0)
    network = case.build()
    optimizer = torch.optim.AdamW(network.parameters(), lr=case.rate)
    chance = torch.Generator().manual_seed(1)
    batches = iter(lambda: case.batch(case.size, chance), None)
    loss_of = compiled(lambda *batch: case.loss(network, *batch), framework)
    # Its hooks break the graph.
    update = optimizer.step if eager_optimizer else compiled(optimizer.step, framework, False)

    def step() -> Tensor:
        loss = loss_of(*next(batches))
        optimizer.zero_grad()
        loss.backward()
        update()
        return loss.detach()

    return Run(step)


def trained(
    case: TrainingCase, frameworks: list[str], steps: int, eager_optimizer: bool = False
) -> dict[str, Run]:
    """Runs of so many steps, in turns."""
    torch.compiler.reset()
    runs = {name: started(case, name, eager_optimizer) for name in frameworks}
    # Otherwise Dynamo leaves LSTMs to eager.
    with dynamo.config.patch(allow_rnn=True):
        for _ in range(0, steps, _TURN):
            for run in runs.values():
                run.take(_TURN)
    return runs


def rows(
    names: list[str], frameworks: list[str], steps: int, eager_optimizer: bool
) -> Iterator[str]:
    """The lines of the table."""
    others = [f for f in frameworks if f != "eager"]
    heads = ["case", "loss at first", "loss at last"]
    heads += [f"{f}: difference of loss" for f in others]
    heads += [f"{f}: first step s" for f in frameworks] + [f"{f}: step ms" for f in frameworks]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for name in names:
        runs = trained(CASES[name], frameworks, steps, eager_optimizer)
        eager = runs["eager"]
        cells = [name, f"{eager.losses[0]:.3f}", f"{eager.final:.4f}"]
        cells += [f"{abs(runs[f].final / eager.final - 1):.1e}" for f in others]
        cells += [f"{runs[f].seconds:.1f}" for f in frameworks]
        cells += [f"{statistics.median(runs[f].times) * 1e3:.1f}" for f in frameworks]
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """The command line; see the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--frameworks", nargs="+", default=["eager", "inductor", "max"])
    parser.add_argument("--eager-optimizer", action="store_true")
    given = parser.parse_args()
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}: choose of {', '.join(CASES)}")
    names = given.cases or list(CASES)
    for line in rows(names, given.frameworks, given.steps, given.eager_optimizer):
        print(line, flush=True)


if __name__ == "__main__":
    main()
