"""The command ``bench``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_max_backend.bench.spec import DTYPES, MODES, Spec

_FRAMEWORKS = ("eager", "inductor", "max", "max-packed", "openvino", "onnxruntime", "tinygrad")


def add_command(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``bench`` and ``bench compare``.

    Args:
        commands: The subparsers of the command line.
        command: Adds a command of a name, with help, that a function runs.
    """
    bench = command(
        commands,
        _bench,
        "bench",
        "a model in several frameworks, side by side",
        "Runs MODEL in each framework, in processes of their own that take turns, and prints a "
        "table. MODEL is file.py:function, which returns a model and its arguments; a local folder "
        "of Hugging Face; an architecture of transformers (gpt2, bert, esm, ...), timm/NAME or "
        "torchvision/NAME, with random weights.",
    )
    bench.add_argument("model", metavar="MODEL")
    bench.add_argument(
        "--frameworks", nargs="+", choices=_FRAMEWORKS, default=list(_FRAMEWORKS[:3])
    )
    bench.add_argument("--batch", type=int, default=1, help="items of a call")
    bench.add_argument("--seq", type=int, default=128, help="tokens of an item")
    bench.add_argument("--dtype", choices=DTYPES, default="float32")
    bench.add_argument("--mode", choices=MODES, default="inference")
    bench.add_argument("--new-tokens", type=int, default=32, help="of an item, to generate")
    bench.add_argument("--threads", type=int, default=0, help="of a framework; 0: its own choice")
    bench.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    bench.add_argument("--seconds", type=float, default=5.0, help="of timed calls, each turn")
    bench.add_argument("--rounds", type=int, default=3, help="turns of each framework")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    bench.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    bench.add_argument("--plot", type=Path, metavar="FILE.png", help="draw them (matplotlib)")
    compare = command(
        commands,
        _compare,
        "bench compare",
        "two reports of `bench --json`",
        "Prints how the figures in NEW differ from those in OLD.",
    )
    compare.add_argument("old", metavar="OLD.json", type=Path)
    compare.add_argument("new", metavar="NEW.json", type=Path)


def _bench(parsed: argparse.Namespace) -> int:
    from torch_max_backend.bench.report import markdown, plot, report
    from torch_max_backend.bench.running import run

    spec = Spec(
        parsed.model,
        parsed.batch,
        parsed.seq,
        parsed.dtype,
        parsed.mode,
        parsed.device,
        parsed.threads,
        parsed.new_tokens,
        parsed.seconds,
    )
    found = report(spec, run(spec, parsed.frameworks, max(2, parsed.rounds)))
    table = markdown(found)
    sys.stdout.write(table)
    if parsed.json:
        parsed.json.write_text(json.dumps(found, indent=1) + "\n")
    if parsed.markdown:
        parsed.markdown.write_text(table)
    if parsed.plot:
        plot(found, parsed.plot)
    return int(all("failed" in row for row in found["frameworks"].values()))


def _compare(parsed: argparse.Namespace) -> int:
    from torch_max_backend.bench.report import compared

    old, new = (json.loads(path.read_text()) for path in (parsed.old, parsed.new))
    sys.stdout.write(compared(old, new))
    return 0
