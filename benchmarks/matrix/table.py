"""What is known of the models, as a table and as what is expected of the next run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.matrix import CASES
from benchmarks.matrix.runner import PHASES, Reports, Results
from benchmarks.processes.steady import FRAMEWORKS

HEADS = (
    "model", "family", "graphs", "breaks", "on MAX", "torch runs", "error", "from float64",
    "cold s", "warm s", "eager ms", "inductor ms", "max ms",
)  # fmt: skip

_ABOUT = """# Models

Architectures with random weights and small sizes, through `torch.compile(model, backend="max")`
with the default options, beside eager PyTorch. `python -m benchmarks.matrix` runs it;
each phase of each model is a process of its own. The models are in eval mode, without gradients, in
float32, with a batch of 2, and have been called once in eager before.

- **graphs**, **breaks**: what Dynamo makes of the model. A break is Dynamo's: data decides what the
  program does next, or its source is not understood.
- **on MAX**: the share of operators that MAX takes, on CPU [as steps](engines.md). **torch runs**:
  operators that the backend refuses, with the number of nodes; *small* counts operators of graphs,
  or of parts between those, that are too small to be worth a call (the option `min_ops`).
- **error**: the largest difference from eager in any tensor of the output, beside the largest value
  of that tensor. **from float64**: ours / eager's own. Right is at most 3 times eager's distance
  from float64, or, where the model does not run in float64, 2e-4 from eager; integers are equal, or
  all of a model's together off from float64's in at most 3 times as many places as eager's.
- **cold s**: CPU / wall seconds of the first call, caches empty but for the
  [libraries of kernels](engines.md#libraries-of-kernels) that a machine builds once; **warm s**: in
  a new process that finds them filled. CPU seconds include child processes.
- **ms**: a call in steady state, median, the three in turns in one process.
"""


def markdown(results: Results) -> str:
    """The page: what the columns mean, what was measured on, how many met the bars, the table."""
    known = {name: results.reports.get(name, {}) for name in CASES}
    lines = [_ABOUT, *_where(results.machines), "", *_summary(known), ""]
    lines += ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    for name, case in CASES.items():
        lines.append("| " + " | ".join([name, case.family, *_cells(known[name])]) + " |")
    return "\n".join(lines) + "\n"


def expectations(results: Results) -> dict[str, dict[str, Any]]:
    """What the next run should find: the structure of each model, and a bound of its error: the
    next power of 10 above twice what was found, or ``None`` if nothing was."""
    found = {}
    for name in CASES:
        known = results.reports.get(name, {})
        structure = known.get("explain", {})
        if "graphs" not in structure:
            continue
        keys = ("graphs", "breaks", "operators", "small", "fallbacks")
        error = known.get("cold", {}).get("error")
        found[name] = {k: structure[k] for k in keys} | {"error": error and _bound(error)}
    return found


def _bound(error: float) -> float:
    return float(f"1e{math.ceil(math.log10(2 * error))}") if math.isfinite(error) else error


def share(structure: Mapping[str, Any]) -> str:
    """The share of operators that MAX takes, in percent."""
    left = sum(structure["fallbacks"].values()) + structure["small"]
    taken = structure["operators"]
    return f"{100 * taken / max(1, taken + left):.1f}%" if left else "100%"


def runs_in_torch(structure: Mapping[str, Any]) -> str:
    """Operators that torch runs, with the number of nodes."""
    parts = [f"`{name}` {count}" for name, count in structure["fallbacks"].items()]
    return ", ".join(parts + [f"small {structure['small']}"] * bool(structure["small"]))


def _where(machines: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    described: dict[str, list[str]] = {}
    for which in PHASES:
        machine = machines.get(which)
        if machine is None:
            continue
        versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
        text = (
            f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, Linux; {versions}; "
            f"load {machine['load']:.1f} before the run, models at once: {machine['jobs']}"
        )
        described.setdefault(text, []).append(which)
    yield from (f"- {', '.join(which)}: {text}." for text, which in described.items())
    yield "- What runs at once is in each other's wall times, and to some part in the CPU seconds."


def _summary(known: Mapping[str, Reports]) -> Iterator[str]:
    structures = [k["explain"] for k in known.values() if "graphs" in k.get("explain", {})]
    ran = [k["cold"] for k in known.values() if "cold" in k]
    right = [r for r in ran if not r.get("failed") and not r["wrong"]]
    whole = [s for s in structures if s["graphs"] == 1 and not s["breaks"]]
    taken = [s for s in structures if not s["fallbacks"]]
    all_of_it = [s for s in taken if not s["small"]]
    yield f"- {len(known)} models; {len(structures)} explained, {len(ran)} compiled and run."
    yield f"- Of those that ran, {len(right)} are right (bar: all)."
    on_steps = [s for s in structures if s.get("whole on steps")]
    yield (
        f"- Of those explained, {len(taken)} have no operator that is refused (bar: 90%), "
        f"{len(all_of_it)} leave nothing to torch; {len(on_steps)} run as steps whole (bar: 110); "
        f"{len(whole)} are one graph."
    )
    ratios = {other: _times(known, other) for other in FRAMEWORKS[:-1]}
    for other, times in ratios.items():
        if times:
            mean = statistics.geometric_mean(times.values())
            faster = sum(r < 1 for r in times.values())
            yield (
                f"- Milliseconds beside {other}'s: {mean:.2f} times, geometric mean of "
                f"{len(times)} models; less than {other}'s in {faster} of them."
            )
    if slower := [f"{n} {r:.2f}" for n, r in ratios["eager"].items() if r > 1]:
        yield f"- Slower than eager, times: {', '.join(slower)}."
    wrong = [n for n, k in known.items() if k.get("cold", {}).get("wrong")]
    failed = [n for n, k in known.items() if any("failed" in r for r in k.values())]
    if wrong:
        yield f"- Wrong: {', '.join(wrong)}."
    if failed:
        yield f"- Failed: {', '.join(failed)}."


def _times(known: Mapping[str, Reports], other: str) -> dict[str, float]:
    """How many times another framework's milliseconds ours are, by model, where both are known."""
    timed = {name: reports.get("steady", {}) for name, reports in known.items()}
    return {n: t["max"] / t[other] for n, t in timed.items() if {"max", other} <= t.keys()}


def _cells(known: Reports) -> Iterator[str]:
    explained, cold, warm, steady = (known.get(p, {}) for p in PHASES)
    if "graphs" in explained:
        yield str(explained["graphs"])
        yield str(explained["breaks"])
        yield share(explained)
        yield runs_in_torch(explained)
    else:
        yield from ("", "", "", explained.get("failed", ""))
    if "error" in cold:
        notes = [cold["wrong"]] * bool(cold["wrong"])
        notes += [f"{k}: {cold[k]}" for k in ("failed graphs", "failed runs") if k in cold]
        yield f"{cold['error']:.1e}" + "".join(f" ({n})" for n in notes)
        double = cold["ours"] is not None
        yield f"{cold['ours']:.0e} / {cold['theirs']:.0e}" if double else "-"
    else:
        yield from (cold.get("failed", ""), "")
    for report in (cold, warm):
        both = f"{report['cpu_s']:.1f} / {report['wall_s']:.1f}" if "cpu_s" in report else ""
        yield both or (report.get("failed", "") if report is warm else "")
    for framework in FRAMEWORKS:
        told = f"{steady[framework]:.2f}" if framework in steady else "failed"
        yield told if steady else ""
