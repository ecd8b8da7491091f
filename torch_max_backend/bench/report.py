"""The figures of a measurement as tables, JSON and a picture."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from torch_max_backend.bench.spec import Spec
from torch_max_backend.errors import OptionError
from torch_max_backend.process.processor import processor_name

_COLUMNS: Sequence[tuple[str, str, str]] = (
    ("load s", "load_s", ".1f"),
    ("first call, cold s", "cold_s", ".2f"),
    ("first call, warm s", "warm_s", ".2f"),
    ("median ms", "median_ms", ".3f"),
    ("p90 ms", "p90_ms", ".3f"),
    ("variation", "variation", ".1%"),
    ("per second", "per_second", ",.0f"),
    ("speed-up", "speed_up", ".2f"),
    ("memory MB", "memory_mb", ",.0f"),
    ("largest difference", "largest_difference", ".1e"),
    ("mean difference", "mean_difference", ".1e"),
    ("same tokens", "same_tokens", ".0%"),
)
_PACKAGES = (
    "torch", "torch_max_backend", "max", "transformers", "timm",
    "openvino", "onnxruntime", "tinygrad",
)  # fmt: skip


def report(spec: Spec, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All figures, with what they were measured on. ``speed_up`` is beside eager PyTorch."""
    base = rows.get("eager", {}).get("median_ms")
    frameworks = {name: dict(row) for name, row in rows.items()}
    for row in frameworks.values():
        if base and "median_ms" in row:
            row["speed_up"] = base / row["median_ms"]
    return {
        "spec": dict(spec.plain()),
        "machine": {
            "processor": _processor(spec),
            "python": platform.python_version(),
            "versions": _versions(),
            "commit": _commit(),
        },
        "frameworks": frameworks,
    }


def _processor(spec: Spec) -> str:
    name = processor_name()
    return f"{torch.cuda.get_device_name()}, {name}" if spec.device == "cuda" else name


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """Of the checkout that this package is imported from, "" for an installed one."""
    here = Path(__file__).resolve().parent
    done = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def markdown(found: Mapping[str, Any]) -> str:
    """A report as a table."""
    spec, machine = found["spec"], found["machine"]
    unit = next((r["unit"] for r in found["frameworks"].values() if "unit" in r), "items")
    kept = {key for row in found["frameworks"].values() for key in row}
    columns = [column for column in _COLUMNS if column[1] in kept]
    heads = [f"{unit} a second" if key == "per_second" else head for head, key, _ in columns]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    settings = f"batch {spec['batch']}, length {spec['length']}, {spec['dtype']}, {spec['mode']}"
    lines = [
        f"**{spec['model']}**: {settings}, {spec['device']}. {machine['processor']}; {versions}.",
        "",
        f"| framework | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name, row in found["frameworks"].items():
        if "failed" in row:
            reason = " ".join(row["failed"].split()).replace("|", "\\|")
            lines.append(f"| {name} | {reason} |{' |' * (len(columns) - 1)}")
            continue
        cells = [format(row[key], form) if key in row else "" for _, key, form in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How the figures of two reports of one model differ: new over old, below 1 is better."""
    keys = ("cold_s", "warm_s", "median_ms", "p90_ms", "memory_mb")
    lines = [f"| framework | {' | '.join(keys)} |", f"|---|{'---:|' * len(keys)}"]
    for name, row in new["frameworks"].items():
        before = old["frameworks"].get(name, {})
        cells = [f"{row[k] / before[k]:.2f}" if before.get(k) and k in row else "" for k in keys]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    differing = [k for k in new["spec"] if old["spec"].get(k) != new["spec"][k]]
    differing += [k for k in new["machine"] if old["machine"].get(k) != new["machine"][k]]
    if differing:
        lines += ["", f"They differ in: {', '.join(differing)}."]
    return "\n".join(lines) + "\n"


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Draw median milliseconds and first calls.

    Raises:
        OptionError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise OptionError("--plot needs matplotlib, which is not installed.") from e
    rows = {n: r for n, r in found["frameworks"].items() if "median_ms" in r}
    figure = Figure(figsize=(9, 0.6 + 0.5 * len(rows)), layout="constrained")
    parts: Any = figure.subplots(1, 3, sharey=True)
    figures = (("median_ms", "call, ms"), ("cold_s", "first call, cold, s"))
    for axis, (key, title) in zip(parts, (*figures, ("memory_mb", "memory, MB")), strict=True):
        colors = ["#f58518" if name == "max" else "#4c78a8" for name in rows]
        bars = axis.barh(list(rows), [r[key] for r in rows.values()], color=colors)
        axis.bar_label(bars, fmt=_label, padding=2)
        axis.margins(x=0.2)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    parts[0].invert_yaxis()  # all three: they share it
    spec = found["spec"]
    title = f"{spec['model']}, {spec['dtype']}, {found['machine']['processor']}"
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=150)


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
