"""``python -m tests.conformance.layers``: torch's databases of modules and optimizers, as a table.

Every entry of ``module_db``, training and evaluating, forward and backward, and every optimizer of
``optim_db`` in each of its implementations, three steps: through ``torch.compile`` on the steps
engine, compared with eager PyTorch. Of an entry that has many inputs some are taken, spread over
all. Batches run in processes of their own: a crash is found and counted. Ten minutes on two cores.

    python -m tests.conformance.layers --markdown docs/conformance-modules.md
    python -m tests.conformance.layers 'nn.LSTM*' --dtypes float32
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Any

import torch

from tests.conformance.apart import run_apart

DTYPES = ("float32", "float64")
# Databases, and in how many ways their entries run.
_MODES = {"module": ("training", "evaluation"), "optimizer": ("loop", "foreach", "fused")}
_STEPS = 3
# How many times what a last bit of the gradients changes a result may be from eager's.
_SLACK = 3.0
# Dtypes that optimizers compute in, whatever their parameters'.
_ROUNDS = {"Muon": torch.bfloat16}
# Said of a result that is not eager's, but what torch traces.
TRACED = "as torch traces it"
# Entries checked by one process.
_BATCH = 12
# Of an entry in a dtype and a mode, at most: torch has 500 of LinearCrossEntropyLoss.
_INPUTS = 40

_HEADER = """\
# Conformance: modules and optimizers

Torch's databases of modules (`module_db`) and of optimizers (`optim_db`) on CPU, by the
[steps engine](engines.md), beside eager PyTorch. Modules run forward and backward, training and
evaluating; results, gradients of arguments and parameters, and buffers are compared. Optimizers
take three steps; parameters and their state are compared. A result passes within the tolerance of
torch's own tests, or if it is at most three times as far from float64's as eager's is, or (of
optimizers, which round to bfloat16 at times) as eager's is from what it makes of gradients that
differ in their last bit; of random results shapes and dtypes are compared. Made by

    uv run python -m tests.conformance.layers --markdown docs/conformance-modules.md

"Traced so" differs from eager as `torch.compile(backend="aot_eager")` does: torch traces other
computations than eager's. "No step" is run by torch, between the steps of what is around it, or
compiled by MAX. "Refused" raises an error that names the operator and the reason.

"""

# Database, entry, dtype, mode.
Task = tuple[str, str, str, str]


def entries() -> dict[str, dict[str, Any]]:
    """The entries of both databases by name."""
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    return {
        "module": {info.formatted_name.replace("_", "."): info for info in module_db},
        "optimizer": {info.optim_cls.__name__: info for info in optim_db},
    }


def modules_cases(info: Any, dtype: Any, mode: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """For each input of a module a name, and what says what is wrong with it."""
    training = mode == "training"
    torch.manual_seed(0)
    made = list(
        info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
    )
    for i in range(0, len(made), ceil(len(made) / _INPUTS) or 1):
        given = made[i]
        yield (
            f"{i} {given.desc}".strip(),
            lambda g=given: _module(info.module_cls, g, dtype, training),
        )


def _module(kind: Any, given: Any, dtype: Any, training: bool) -> str | None:
    from tests.conformance.closeness import difference

    constructor, forward = given.constructor_input, given.forward_input
    torch.manual_seed(0)
    module = kind(*constructor.args, **constructor.kwargs).to(dtype).train(training)
    with torch.no_grad():  # lazy modules get their parameters
        module(*_copied(forward.args), **_copied(forward.kwargs))
    theirs = _called(module, forward)
    again = _called(module, forward, seed=1)
    random = any(not torch.equal(a, b) for a, b in zip(theirs, again, strict=True))
    truth = None
    if not random and dtype == torch.float32:
        truth = _called(module, forward, wide=True)
    ours = _called(module, forward, compiled=_compiled)
    if random:
        ours, theirs = ([torch.zeros_like(t) for t in found] for found in (ours, theirs))
    wrong = difference(ours, theirs, truth)
    if wrong and not random:
        traced = _called(module, forward, compiled=_traced)
        wrong = TRACED if difference(ours, traced, None) is None else wrong
    return wrong


def _copied(value: Any, wide: bool = False) -> Any:
    from torch.utils._pytree import tree_map

    def copied(v: Any) -> Any:
        if not isinstance(v, torch.Tensor):
            return v
        made = v.detach().clone()
        made = made.double() if wide and made.is_floating_point() else made
        return made.requires_grad_(v.requires_grad)

    return tree_map(copied, value)


def _called(
    module: Any,
    given: Any,
    seed: int = 0,
    wide: bool = False,
    compiled: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """Results of a module, gradients of its arguments and parameters, and its buffers."""
    from torch.utils._pytree import tree_leaves

    module = copy.deepcopy(module)
    module = module.double() if wide else module
    call = module if compiled is None else compiled(module)
    args, kwargs = _copied((given.args, given.kwargs), wide)
    torch.manual_seed(seed)
    results = [v for v in tree_leaves(call(*args, **kwargs)) if isinstance(v, torch.Tensor)]
    found = [v.detach() for v in results]
    wanted = [v for v in results if v.requires_grad and v.is_floating_point()]
    if wanted:
        total = sum(
            (v * torch.linspace(0.5, 1.5, v.numel(), dtype=v.dtype).reshape(v.shape)).sum()
            for v in wanted
        )
        total.backward()
        inputs = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        # No gradient is not the same as one of zeros.
        found += [
            torch.empty(0) if v.grad is None else v.grad
            for v in (*inputs, *module.parameters())
            if v.requires_grad
        ]
    return [v.clone() for v in (*found, *module.buffers())]


def _compiled(function: Any) -> Any:
    from torch_max_backend import max_backend

    torch._dynamo.reset()
    options = {"engine": "steps", "fallback": "error", "fuse": False, "min_ops": 1}
    return torch.compile(function, backend=max_backend, dynamic=False, options=options)


def _traced(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", dynamic=False)


def optimizer_cases(info: Any, dtype: Any, mode: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """For each input of an optimizer a name, and what says what is wrong with it."""
    if mode == "foreach" and "foreach" not in info.supported_impls:
        return
    if mode == "fused" and "cpu" not in info.supports_fused_on:
        return
    for i, given in enumerate(info.optim_inputs_func(device="cpu", dtype=dtype)):
        options = {**given.kwargs}
        if "foreach" in info.supported_impls:
            options["foreach"] = mode == "foreach"
        if mode == "fused":
            options["fused"] = True
        name = f"{i} {given.desc}".strip()
        yield name, lambda o=options: _optimizer(info, o, dtype)


def _optimizer(info: Any, options: dict[str, Any], dtype: Any) -> str | None:
    from tests.conformance.closeness import difference

    ours, theirs = (_stepped(info, options, dtype, kind) for kind in (_compiled, None))
    wrong = difference(ours, theirs, None)
    if wrong:
        nudged = _stepped(info, options, dtype, nudge=True)
        pairs = zip(ours, theirs, nudged, strict=True)
        if all((a - b).abs().max() <= _SLACK * (c - b).abs().max() for a, b, c in pairs):
            return None
        traced = _stepped(info, options, dtype, _traced)
        wrong = TRACED if difference(ours, traced, None) is None else wrong
    return wrong


def _stepped(
    info: Any,
    options: dict[str, Any],
    dtype: Any,
    compiled: Callable[[Any], Any] | None = None,
    nudge: bool = False,
) -> list[Any]:
    """Parameters and their state after some steps; of gradients that differ in the last bit if
    ``nudge``."""
    chance = torch.Generator().manual_seed(0)
    shapes = [(10, 5), (5, 3)]

    def drawn(shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, generator=chance, dtype=dtype)

    params = [torch.nn.Parameter(drawn(shape)) for shape in shapes]
    options = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    made = info.optim_cls(params, **options)
    step = made.step if compiled is None else compiled(made.step)
    targets = [drawn(shape) for shape in shapes]

    def closure() -> Any:
        made.zero_grad()
        loss = sum(((p - t) ** 2).sum() for p, t in zip(params, targets, strict=True))
        loss.backward()
        return loss

    for _ in range(_STEPS):
        if info.step_requires_closure:
            step(closure)
            continue
        for p in params:
            grad = drawn(p.shape)
            if nudge:
                last = torch.finfo(_ROUNDS.get(info.optim_cls.__name__, dtype)).eps
                signs = torch.arange(grad.numel()).reshape(grad.shape) % 2 * 2 - 1
                grad = grad * (1 + last * signs)
            p.grad = grad.to_sparse() if info.only_supports_sparse_grads else grad
        step()
    state = [v for p in params for v in made.state[p].values() if isinstance(v, torch.Tensor)]
    return [*(p.detach() for p in params), *state]


def check(tasks: Sequence[Task], most: int | None = None) -> Iterator[dict[str, Any]]:
    """The results of entries, one for each of their inputs, or of ``most`` of them, which their
    descriptions choose."""
    from torch_max_backend.errors import MaxBackendError, StepsError

    known = entries()
    for database, name, dtype, mode in tasks:
        info = known[database][name]
        cases = modules_cases if database == "module" else optimizer_cases
        found = list(cases(info, getattr(torch, dtype), mode))
        found.sort(key=lambda each: hashlib.sha256(each[0].encode()).digest())
        for case, wrong in found[:most]:
            result = {"task": [database, name, dtype, mode], "case": case, "text": ""}
            print(f"# {json.dumps(result)}", flush=True)
            try:
                with torch._dynamo.config.patch(allow_rnn=True, cache_size_limit=64):
                    text = wrong()
                outcome = "traced so" if text == TRACED else "wrong" if text else "passed"
                result |= {"outcome": outcome, "text": text or ""}
            except StepsError as e:
                result |= {"outcome": "no step", "text": str(e)}
            except MaxBackendError as e:
                result |= {"outcome": "refused", "text": str(e)}
            except Exception as e:
                result |= {"outcome": "error", "text": f"{type(e).__name__}: {e}"}
            yield result


def checked_apart(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Check a batch in a process of its own; if that dies, each entry in one of its own."""
    done = run_apart("tests.conformance.layers", tasks)
    if done.failure is None:
        return done.results
    if len(tasks) > 1:
        return [result for task in tasks for result in checked_apart([task])]
    blamed = done.begun or {"task": list(tasks[0]), "case": ""}
    return [*done.results, {**blamed, "outcome": "crash", "text": done.failure}]


def all_tasks(patterns: Sequence[str], dtypes: Sequence[str]) -> list[Task]:
    """What is to be checked."""
    found = []
    for database, infos in entries().items():
        for name, info in infos.items():
            if not any(fnmatch.fnmatchcase(name, p) for p in patterns):
                continue
            taken = getattr(info, "dtypes", [getattr(torch, d) for d in dtypes])
            for dtype in dtypes:
                if getattr(torch, dtype) in taken:
                    found += [(database, name, dtype, mode) for mode in _MODES[database]]
    return found


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The shares of each database, and what does not pass with its reason."""
    lines = []
    for database in _MODES:
        mine = [r for r in results if r["task"][0] == database]
        outcomes = Counter(r["outcome"] for r in mine)
        lines += [
            f"## {database.capitalize()}s",
            "",
            "| outcome | inputs | share |",
            "|---|---|---|",
        ]
        lines += [f"| {o} | {n} | {n / len(mine):.1%} |" for o, n in outcomes.most_common()]
        rest = [r for r in mine if r["outcome"] != "passed"]
        if rest:
            lines += ["", "| entry | outcome | what |", "|---|---|---|"]
        for r in rest:
            _, name, dtype, mode = r["task"]
            what = " ".join(r["text"].split())[:200].replace("|", "\\|")
            lines.append(f"| {name}, {dtype}, {mode}, {r['case']} | {r['outcome']} | {what} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="of entries; * matches any text")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="write the tables")
    parser.add_argument("--out", type=Path, help="results as JSON")
    parser.add_argument("--tasks", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.tasks:
        for result in check([tuple(t) for t in json.loads(Path(given.tasks).read_text())]):
            print(json.dumps(result), flush=True)
        return
    tasks = all_tasks(given.names or ["*"], given.dtypes)
    work = [tasks[i : i + _BATCH] for i in range(0, len(tasks), _BATCH)]
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for i, found in enumerate(pool.map(checked_apart, work), 1):
            results += found
            counts = Counter(r["outcome"] for r in results)
            print(f"{i} of {len(work)}: {dict(counts)}", file=sys.stderr, flush=True)
            if given.out:
                given.out.write_text(json.dumps(results, indent=0))
    text = _HEADER + markdown(results)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
