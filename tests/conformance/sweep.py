"""``python -m tests.conformance.sweep``: torch's operator database, as a table.

Every entry of ``op_db`` that torch traces, in eight dtypes and up to six samples each, run by the
steps engine in processes of their own: a crash is found and counted. A run takes one sample of
every entry in every dtype, in a random but fixed order, before it takes others: what it has when
``--minutes`` end it is a fair sample. With ``--out``, the next run goes on where the last one
ended. ``--engine max`` has MAX compile batches of programs, a CPU second for each; ``--build-only``
runs nothing and says what is refused. All pages: ``python -m tests.conformance.whole``.

    python -m tests.conformance.sweep --samples 2 --markdown docs/conformance.md
    python -m tests.conformance.sweep 'linalg.*' --dtypes float32 --build-only
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.apart import run_apart

if TYPE_CHECKING:
    from tests.conformance.program import Program
from tests.conformance.sweep_page import (
    BY,
    CHECKED,
    DTYPES,
    HEADER,
    NO_STEP,
    SUBNORMALS,
    TELLS,
    Result,
    is_untraceable,
    markdown,
)

# Of an entry in a dtype, at most.
_SAMPLES = 6
# Programs compiled as one module, and how many a process checks: imports take ten seconds.
_TOGETHER = 200
_BATCH = {"max": 200, "steps": 1000}
# An entry, a dtype, and the turn in which this sample of theirs comes.
Task = tuple[str, str, int]


def check(tasks: Sequence[Task], given: argparse.Namespace) -> Iterator[Result]:
    """Run the samples of (entry, dtype) pairs; one result each."""
    import torch

    from tests.conformance.samples import programs

    @lru_cache(_TOGETHER)
    def samples_of(name: str, dtype: str) -> list[Program]:
        settings = {"dynamic": given.dynamic, "gradients": given.gradients}
        made = list(programs(name, getattr(torch, dtype), limit=given.samples, **settings))
        random.Random(f"{name} {dtype}").shuffle(made)
        return made

    found: list[tuple[Task, Program]] = []
    for task in tasks:
        if len(found) == _TOGETHER:
            yield from _checked(found, given)
            found = []
        name, dtype, turn = task
        try:
            made = samples_of(name, dtype)
        except Exception as e:
            yield _result(task, f"{name}-{dtype}", "no samples", f"{type(e).__name__}: {e}")
            continue
        if turn < len(made):
            found.append((task, made[turn]))
        else:
            yield _result(task, f"{name}-{dtype}", "no samples", f"it has {len(made)}")
    yield from _checked(found, given)


def _checked(found: Sequence[tuple[Task, Program]], given: argparse.Namespace) -> Iterator[Result]:
    """Compile samples together, run each."""
    from tests.conformance.gradcheck import gradcheck
    from tests.conformance.modules import builds, compile_module_of
    from tests.conformance.steps import plan_program, plan_together
    from tests.conformance.subnormals import can_tell, complaint
    from torch_max_backend import UnsupportedError
    from torch_max_backend.errors import StepsError

    steps = given.engine == "steps"
    if given.build_only:
        for _, program in found:
            plan_program(program) if steps else builds(program)
    elif steps:
        plan_together([program for _, program in found])
    else:
        compile_module_of([program for _, program in found])
    for task, program in found:
        error = program.error
        if isinstance(error, StepsError):
            nodes = [str(node.target) for node, _ in error.refused]
            yield _result(task, program.name, "no step", str(error), nodes)
        elif isinstance(error, UnsupportedError):
            yield _result(task, program.name, "refused", str(error), _operators(error))
        elif error is not None and is_untraceable(error):
            yield _result(task, program.name, "not traced", type(error).__name__)
        elif error is not None:
            kind = "error" if _eager_works(program) else "no samples"
            yield _result(task, program.name, kind, f"{type(error).__name__}: {error}")
        elif given.build_only:
            yield _result(task, program.name, "built", "")
        else:
            print(f"# {json.dumps(task)}", flush=True)
            if given.subnormals and not _has_subnormals(task[0], program):
                yield _result(task, program.name, "no samples", "no subnormal arguments")
                continue
            try:
                wrong, note = None, ""
                if given.subnormals:
                    wrong, note = complaint(program), TELLS if can_tell(program) else ""
                else:
                    wrong = _wrong(task[0], program)
                finite = given.gradients and task[1] == "float64" and not _drawn(program)
                if finite and not wrong:
                    checked, wrong = gradcheck(program)
                    note = CHECKED if checked else ""
                yield _result(task, program.name, "wrong" if wrong else "passed", wrong or note)
            except Exception as e:
                yield _result(task, program.name, "error", f"{type(e).__name__}: {e}")


# Entries whose values are not defined.
_UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
# Entries that may pick any of several equal elements.
_PICKING = frozenset({"topk", "kthvalue", "median", "nanmedian", "mode", "sort", "argsort"})
# Entries that square their arguments, whose squares are zero; eager squares float64 numbers.
_SQUARING = frozenset({"std", "std_mean", "std.unbiased", "std_mean.unbiased"})
# Entries of matrices, which subnormal numbers make singular.
_SINGULAR = re.compile("linalg[.]|lu|ldl|cholesky|geqrf|ormqr|svd|pinverse|triangular_solve|logdet")


def _has_subnormals(entry: str, program: Program) -> bool:
    """Whether a program is well defined for the subnormal arguments it has from now on."""
    from tests.conformance.subnormals import make_subnormal

    make_subnormal(program)
    undefined = (
        entry in _UNDEFINED | _PICKING | _SQUARING or _SINGULAR.match(entry) or _drawn(program)
    )
    return not undefined and _eager_works(program)


def _wrong(entry: str, program: Any) -> str | None:
    """What is wrong with a program's results. Of random numbers, and of memory that nothing was
    written to, only shapes and dtypes are compared (``tests/ops/test_random.py`` tests values)."""
    import torch

    from tests.conformance.closeness import difference
    from tests.conformance.reference import truth

    ours, theirs = program.run(), program.eager()
    if _drawn(program) or entry in _UNDEFINED:
        ours, theirs = ([torch.zeros_like(t) for t in found] for found in (ours, theirs))
        return difference(ours, theirs, None)
    if entry in _PICKING:
        x, indices = program.tensors[0], ours[-1]
        if any(_same_picked(x, theirs[-1], indices, dim) for dim in range(x.dim())):
            ours = [*ours[:-1], theirs[-1]]
    return difference(ours, theirs, truth(program))


def _drawn(program: Any) -> bool:
    """Whether its results are random numbers, others in each run."""
    from torch_max_backend.registry.lowerings import registry

    return any(registry[t].random for t in program.node_targets() if t in registry)


def _same_picked(x: Any, indices: Any, others: Any, dim: int) -> bool:
    """Whether two results of indices along a dimension pick equal elements."""
    try:
        if indices.dim() < x.dim():
            indices, others = indices.unsqueeze(dim), others.unsqueeze(dim)
        return bool(x.gather(dim, indices).allclose(x.gather(dim, others), 0, 0, equal_nan=True))
    except (RuntimeError, IndexError):
        return False


def _eager_works(program: Any) -> bool:
    try:
        program.eager()
    except Exception:
        return False
    return True


def _operators(error: Exception) -> list[str]:
    return list(getattr(error, "operators", None) or [type(error).__name__])


def _result(
    task: Task, program: str, outcome: str, text: str, operators: Sequence[str] = ()
) -> Result:
    return {
        "entry": task[0],
        "dtype": task[1],
        "turn": task[2],
        "program": program,
        "outcome": outcome,
        "text": text[:2000],
        "operators": list(operators),
    }


def _task(result: Result) -> Task:
    return result["entry"], result["dtype"], result["turn"]


def _worker(given: argparse.Namespace) -> None:
    tasks = [tuple(task) for task in json.loads(Path(given.tasks).read_text())]
    for result in check(tasks, given):
        print(json.dumps(result), flush=True)


def checked_apart(tasks: Sequence[Task], given: argparse.Namespace) -> list[Result]:
    """Check a batch in a process of its own. Where that dies at a sample, this one and what was to
    come after it are checked apart; where it dies before the first one, the batch's halves are."""
    arguments = ["--samples", str(given.samples), "--engine", given.engine]
    for flag in ("dynamic", "gradients", "build_only", "subnormals"):
        arguments += [f"--{flag.replace('_', '-')}"] * getattr(given, flag)
    done = run_apart("tests.conformance.sweep", tasks, arguments)
    if done.failure is None:
        return done.results
    results = done.results
    print(f"of {len(tasks)} samples, {len(results)} have results; {done.failure}", file=sys.stderr)
    if len(tasks) == 1:
        name, dtype, _ = tasks[0]
        return [_result(tasks[0], f"{name}-{dtype}", "crash", done.failure)]
    if done.begun is None:
        half = len(tasks) // 2
        return checked_apart(tasks[:half], given) + checked_apart(tasks[half:], given)
    blamed: Task = tuple(done.begun)
    known = [r for r in results if _task(r) != blamed]
    done_with = {blamed, *map(_task, known)}
    rest = [task for task in tasks if task not in done_with]
    found = checked_apart([blamed], given)
    return known + found + (checked_apart(rest, given) if rest else [])


def all_tasks(
    patterns: Iterable[str], dtypes: Iterable[str], samples: int, gradients: bool = False
) -> list[Task]:
    """The samples of ``op_db`` that match: the first of every (entry, dtype) pair, in random order,
    then the others of each; always the same."""
    import torch

    from tests.conformance.samples import OPS

    chosen = [n for n in OPS if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    if gradients:
        chosen = [n for n in chosen if OPS[n].supports_autograd]
    known = {
        n: OPS[n].supported_backward_dtypes("cpu") if gradients else OPS[n].dtypes for n in chosen
    }
    pairs = [(n, d) for n in chosen for d in dtypes if getattr(torch, d) in known[n]]
    random.Random(0).shuffle(pairs)
    # Those of a pair side by side: they share kernels, which are built once.
    firsts = [(*pair, 0) for pair in pairs]
    return firsts + [(*pair, turn) for pair in pairs for turn in range(1, samples)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", default=["*"], help="op_db names; * matches any text")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    parser.add_argument("--samples", type=int, default=_SAMPLES)
    parser.add_argument("--dynamic", action="store_true", help="trace with symbolic sizes")
    parser.add_argument("--gradients", action="store_true", help="of the arguments, by autograd")
    parser.add_argument("--subnormals", action="store_true", help="as floating-point arguments")
    parser.add_argument("--build-only", action="store_true", help="compile and run nothing")
    parser.add_argument("--engine", choices=("steps", "max"), default="steps", help="who runs them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="start no batch that may end later")
    parser.add_argument("--out", type=Path, help="results as JSON, to go on with")
    parser.add_argument("--markdown", type=Path, help="write the tables")
    parser.add_argument("--tasks", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.tasks:
        _worker(given)
        return
    tasks = all_tasks(given.ops or ["*"], given.dtypes, given.samples, given.gradients)
    results: list[Result] = []
    if given.out and given.out.exists():
        results = json.loads(given.out.read_text())
    done = set(map(_task, results))
    left = [task for task in tasks if task not in done]
    size = _BATCH[given.engine]
    work = [left[i : i + size] for i in range(0, len(left), size)]
    start, longest = time.monotonic(), 0.0

    def run(batch: list[Task]) -> list[Result] | None:
        nonlocal longest
        begun = time.monotonic()
        if given.minutes and begun + longest > start + given.minutes * 60:
            return None
        found = checked_apart(batch, given)
        longest = max(longest, time.monotonic() - begun)
        return found

    with ThreadPoolExecutor(given.jobs) as pool:
        for i, found in enumerate(pool.map(run, work), 1):
            if found is None:
                continue
            results += found
            counts = Counter(r["outcome"] for r in results)
            print(f"{i} of {len(work)}: {dict(counts)}", file=sys.stderr, flush=True)
            if given.out:
                given.out.write_text(json.dumps(results, indent=0))
    pairs, reached = ({t[:2] for t in found} for found in (tasks, map(_task, results)))
    flags = [n for n in ("subnormals", "gradients", "dynamic") if getattr(given, n)]
    narrowed = ""
    if tuple(given.dtypes) != DTYPES:
        narrowed += f" --dtypes {' '.join(given.dtypes)}"
    if given.samples != _SAMPLES:
        narrowed += f" --samples {given.samples}"
    if given.engine != "steps":
        narrowed += f" --engine {given.engine}"
    if given.minutes:
        narrowed += f" --minutes {given.minutes:g}"
    text = HEADER.format(
        kind=f": {', '.join(flags)}" if flags else "",
        flags="".join(f" --{flag}" for flag in flags) + narrowed,
        file=given.markdown or "docs/conformance.md",
        by=BY[given.engine],
        samples=given.samples,
    )
    text += NO_STEP if given.engine == "steps" else ""
    text += SUBNORMALS if given.subnormals else ""
    text += f"\n{len(reached)} of {len(pairs)} pairs of an entry and a dtype were reached.\n\n"
    text += markdown(results)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
