"""The page of a sweep's results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
# What torch itself cannot trace without values of tensors; Dynamo breaks the graph there.
_UNTRACEABLE = (
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
    "DataDependentOutputException",
    "UnsupportedFakeTensorException",
    "GuardOnDataDependentSymNode",
)
HEADER = """\
# Conformance{kind}

Samples of torch's operator database (`op_db`) on CPU,
{by},
compared with eager PyTorch: a result passes within the tolerance of torch's own tests, or if it is
at most three times as far from float64's as eager's is. Made by

    uv run python -m tests.conformance.sweep{flags} --markdown {file}

A run takes one sample of every entry in every dtype, in a random but fixed order, then others of
each, up to {samples}. "Refused" raises an error that names the operator and the reason.
"""
BY = {"max": "compiled by MAX", "steps": "run by the [steps engine](engines.md)"}
NO_STEP = """
What has no step is run by torch, between the steps of what is around it, or compiled by MAX.
"""
SUBNORMALS = """
Arguments are subnormal numbers, in float32 from 1e-45 to 1e-38; a result is compared in units of
the smallest. Left out are random numbers, `std` (it squares its arguments, whose squares are zero)
and what takes matrices that subnormal numbers make singular.
"""
# Said of a sample that passed.
CHECKED = "finite differences agree"
# Said of a sample that passed, and would not where subnormal numbers are taken for zero.
TELLS = "other results where subnormal numbers are zero"
Result = dict[str, Any]


def markdown(results: Sequence[Result]) -> str:
    """The share of samples that pass, and what does not with its reason."""
    counted = [r for r in results if r["outcome"] not in ("no samples", "not traced")]
    outcomes = Counter(r["outcome"] for r in counted)
    total = len(counted)
    lines = ["| outcome | samples | share |", "|---|---|---|"]
    lines += [f"| {o} | {n} | {n / total:.1%} |" for o, n in outcomes.most_common()]
    checked = sum(r["text"] == CHECKED for r in counted)
    if checked:
        lines += [
            "",
            f"{checked} of them, all in float64, agree with finite differences as well, along a "
            "random direction (the step and tolerances of `torch.autograd.gradcheck`); the others "
            "in float64 are at a kink, or eager's own gradients do not agree there.",
        ]
    tell = sum(r["text"] == TELLS for r in counted)
    if tell:
        lines += ["", f"Of {tell} of them eager's results differ where subnormal numbers are zero."]
    for outcome in ("no step", "refused"):
        rows = [r for r in counted if r["outcome"] == outcome]
        if rows:
            lines += ["", f"| {outcome} | samples | entries | why |", "|---|---|---|---|"]
            lines += _by_operator(rows)
    rest = [r for r in counted if r["outcome"] in ("wrong", "error", "crash")]
    if rest:
        lines += ["", "| sample | outcome | what |", "|---|---|---|"]
        lines += [f"| {r['program']} | {r['outcome']} | {_first(r['text'])} |" for r in rest]
    return "\n".join(lines) + "\n"


def _by_operator(results: Sequence[Result]) -> list[str]:
    """A line for each operator that stood in the way of samples."""
    found: dict[str, list[Result]] = {}
    for r in results:
        for operator in dict.fromkeys(r["operators"]):
            found.setdefault(operator, []).append(r)
    lines = []
    for operator, rows in sorted(found.items(), key=lambda i: -len(i[1])):
        entries = sorted({r["entry"] for r in rows})
        shown = ", ".join(entries[:4]) + (f" and {len(entries) - 4} more" if entries[4:] else "")
        lines.append(f"| {operator} | {len(rows)} | {shown} | {_reason(rows[0], operator)} |")
    return lines


def is_untraceable(error: Exception) -> bool:
    text = str(error)
    # What an operator reads of a fake tensor's memory; Dynamo makes constants of it.
    return (
        type(error).__name__ in _UNTRACEABLE
        or "its data is not allocated yet" in text
        or "on tensor with symbolic sizes/strides" in text
        or "expected to contain only concrete integers" in text
        or "on CSR tensors" in text
    )


def _reason(result: Result, operator: str) -> str:
    for line in result["text"].splitlines():
        if operator in line and ": " in line:
            return line.rpartition(": ")[2]
    return _first(result["text"])


def _first(text: str) -> str:
    return " ".join(text.split())[:160].replace("|", "\\|")
