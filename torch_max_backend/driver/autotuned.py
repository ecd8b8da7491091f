"""``mode="max-autotune"``: each graph is made ready in several ways, and the fastest is kept.

Where steps run a graph, the candidates are a plan for each bank, which costs next to nothing, and
what MAX compiles. Else each bank is compiled: all candidates are one MAX module, so that a graph
without products, convolutions or attention costs no more than otherwise, and any other costs the
kernels of the other banks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from torch_max_backend.cache import store
from torch_max_backend.driver.background import Background
from torch_max_backend.driver.job import Job, job_of
from torch_max_backend.driver.passes import own_modes
from torch_max_backend.driver.torch_runs import copied
from torch_max_backend.driver.unit import CompiledGraph, Function
from torch_max_backend.errors import CompilationError, MaxBackendError
from torch_max_backend.log import get_logger
from torch_max_backend.options import Options

log = get_logger("tuning")

# A candidate is timed for about this long, in rounds with the others, and within these bounds.
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 0.2, 5, 100
# By how much the default's time must be beaten: less than that is noise.
MARGIN = 0.03


class Tuned:
    """In the place of a ``Job``: several, of which the fastest stays. The arguments are those of
    ``job_of``.

    Attributes:
        jobs: The candidates by engine and bank, the default first; once they are timed, the fastest
            alone.
    """

    def __init__(
        self,
        module: GraphModule,
        static: Collection[int],
        options: Options,
        exact: int | None = None,
    ) -> None:
        plain = replace(options, mode="default")
        free = [b for b in banks() if options.bank is None or options.bank is True]
        spare = copied(module)
        self._values = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
        first = job_of(module, static, plain, exact)
        others = [replace(plain, bank=b) for b in free]
        if first.engine != "max":
            # Steps have no kernels of MAX's own.
            others = [o for o in others if o.bank is not False]
        if first.engine == "auto":
            others.append(replace(plain, engine="max"))
        self.jobs: dict[str, Job] = {_name(first): first}
        entries = {first.entry}
        for other in others:
            try:
                job = job_of(copied(spare), static, other, exact)
            except MaxBackendError as e:
                log.info("No candidate with %s: %s", other, e)
                continue
            if job.entry not in entries:
                entries.add(job.entry)
                self.jobs[_name(job)] = job

    @property
    def chosen(self) -> Job:
        """The fastest candidate, or until that is known the default."""
        return next(iter(self.jobs.values()))

    def graph(self, function: Function) -> CompiledGraph:
        """The graph, to be run by ``function``."""
        return self.chosen.graph(function)

    def in_background(self, eager: Function | None = None) -> Function:
        """The function; a plan, or else ``eager`` or what torch makes of the graph, serves until
        the fastest is known."""
        if all(job.caching and store.has(job.entry) for job in self.jobs.values()):
            return self.functions()[0]
        if self.chosen.engine != "max":
            meanwhile = self.chosen.in_background(eager)
        else:
            meanwhile = eager or self.chosen.by_torch()
        return Background(meanwhile, lambda: self.functions()[0])

    def functions(self, *others: Tuned) -> list[Function]:
        """The fastest function of this graph and of others; everything is compiled as one module,
        the defaults alone if that fails."""
        tuned = [self, *others]
        jobs = [job for t in tuned for job in t.jobs.values()]
        try:
            made = iter(jobs[0].functions(*jobs[1:]))
        except CompilationError as e:
            if len(jobs) == len(tuned):
                raise
            log.warning("Compiled without tuning, because a candidate failed: %s", e)
            for t in tuned:
                t.jobs = dict(list(t.jobs.items())[:1])
            return self.functions(*others)
        return [t._fastest({name: next(made) for name in t.jobs}) for t in tuned]

    def _fastest(self, functions: Mapping[str, Function]) -> Function:
        default = next(iter(functions))
        best = default
        if len(functions) > 1:
            try:
                seconds = times(functions, self._values)
            except Exception as e:
                log.warning("Not tuned: a candidate failed on random arguments: %s", e)
            else:
                fastest = min(seconds, key=seconds.__getitem__)
                if seconds[fastest] < (1 - MARGIN) * seconds[default]:
                    best = fastest
                shown = ", ".join(f"{n} {s * 1e3:.3f} ms" for n, s in seconds.items())
                log.info("%s is kept: %s", best, shown)
        self.jobs = {best: self.jobs[best]}
        return functions[best]


def job_or_candidates(
    module: GraphModule, static: Collection[int], options: Options, exact: int | None = None
) -> Job | Tuned:
    """``job_of``, or with ``mode="max-autotune"`` all candidates; arguments and errors are the
    same."""
    make = Tuned if options.mode == "max-autotune" else job_of
    return make(module, static, options, exact)


def _name(job: Job) -> str:
    bank = (job.trace.signature.bank or "max").split()[0]
    return bank if job.engine == "max" else f"steps {bank}"


def banks() -> list[str | bool]:
    """What option ``bank`` takes on this machine, MAX's own kernels last."""
    from torch_max_backend.gemm_providers.choice import names, provider

    return [*(name for name in names() if provider(name) is not None), False]


def times(functions: Mapping[str, Function], values: Sequence[Any]) -> dict[str, float]:
    """Seconds that each function takes for one call, the least of several rounds.

    Args:
        functions: Take one list of arguments, which they may write to.
        values: Fake tensors and numbers, like the arguments.
    """
    with own_modes(), torch.random.fork_rng(), torch.no_grad():
        arguments = [example(v) for v in values]
        found = {name: _seconds(f, arguments) for name, f in functions.items()}
        rounds = SECONDS / max(*found.values(), 1e-9)
        for _ in range(int(min(max(rounds, LEAST_ROUNDS), MOST_ROUNDS))):
            for name, function in functions.items():
                found[name] = min(found[name], _seconds(function, arguments))
    return found


def _seconds(function: Callable[[list[Any]], Any], arguments: Sequence[Any]) -> float:
    given = list(arguments)
    devices = {a.device for a in given if isinstance(a, torch.Tensor) and a.is_cuda}
    begin = time.perf_counter()
    function(given)
    for device in devices:
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def example(value: Any) -> Any:
    """Random numbers in a tensor like this one (0 for integers, which may be indices), or the
    example of a symbolic number."""
    from torch_max_backend.graph.shapes import hint

    if not isinstance(value, torch.Tensor):
        return hint(value)
    sizes = [int(hint(s)) for s in value.shape]
    strides = [int(hint(s)) for s in value.stride()]
    made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    if made.is_floating_point() or made.is_complex():
        return made.copy_(torch.randn(sizes))
    return made.zero_()
