"""Where the time goes: what ``TORCH_MAX_BACKEND_PROFILE`` prints.

A line for each compile and each call, and a table of all graphs when the process ends.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch_max_backend.log import say
from torch_max_backend.process import fork_safety

Function = Callable[[list[Any]], list[Any]]

STAGES = ("trace", "analyse", "key", "plan", "kernels", "build", "compile", "load", "store")
_CALLS = ("calls", "total", "mean", "bind", "run", "rebuild")

_graphs: list[Graph] = []
_lock = fork_safety.lock()


# When torch began to trace the graph that this thread will compile next.
_tracing = threading.local()


@contextmanager
def tracing() -> Iterator[None]:
    """In the body, torch traces a graph: until the first clock starts, or finds it in its cache."""
    _tracing.began = time.perf_counter()
    try:
        yield
    finally:
        _tracing.began = None


class Clock:
    """Wall time of consecutive stages.

    Attributes:
        seconds: Of each stage so far.
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}
        began = getattr(_tracing, "began", None)
        if began is not None:
            self.seconds["trace"] = self._last - began
            _tracing.began = None

    def lap(self, stage: str) -> None:
        """End a stage, which began where the one before it ended."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def restart(self) -> None:
        """Begin the next stage now: what went before was waiting."""
        self._last = time.perf_counter()

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in self.seconds.items())


@dataclass
class Graph:
    """What is known of one graph.

    Attributes:
        number: Its place in the order of the process, from 1.
        operators: How many it has; ``None`` if it came from AOTAutograd's cache.
        origin: "planned" (for the steps engine), "compiled", "joined" (compiled in the module of
            the graph before it), "loaded" (from the disk), "shared" (with an equal graph of the
            process) or "background".
        clock: The stages of its compile.
        calls: How many calls the compiled model has answered, or failed to.
        eager: How many calls eager PyTorch has answered in the background's stead.
        bind: Seconds until the engine was called: binding the inputs.
        run: Seconds in the engine.
        rebuild: Seconds from there to the results.
        steps: Tells what each kind of step took, if the graph runs as steps.
    """

    number: int
    operators: int | None
    origin: str
    clock: Clock
    calls: int = 0
    eager: int = 0
    bind: float = 0.0
    run: float = 0.0
    rebuild: float = 0.0
    steps: Callable[[], str] | None = None
    lock: threading.Lock = field(default_factory=fork_safety.lock, repr=False)

    @property
    def total(self) -> float:
        """Seconds of all calls."""
        return self.bind + self.run + self.rebuild


def start(clock: Clock, origin: str, operators: int | None = None) -> Graph:
    """Add a graph to the table, which is printed when the process ends."""
    with _lock:
        if not _graphs:
            atexit.register(_say_table)
        graph = Graph(len(_graphs) + 1, operators, origin, clock)
        _graphs.append(graph)
    return graph


def graphs() -> list[Graph]:
    """The graphs of the process so far, in order."""
    with _lock:
        return list(_graphs)


def tell(graph: Graph) -> None:
    """Print a line on what making a graph ready took."""
    say(f"torch_max_backend: graph {graph.number} {graph.origin}: {graph.clock}")


def timed(graph: Graph, executable: Any, function: Function | None = None) -> Function:
    """A function that prints how long each call took, and where.

    Args:
        graph: Where the times of each call are added.
        executable: An ``Executable`` or ``StepExecutable``; it is changed.
        function: What calls it; by default the executable itself.
    """
    return _Timed(graph, executable, function or executable)


class _Timed:
    _boxed_call = True

    def __init__(self, graph: Graph, executable: Any, function: Function) -> None:
        self._graph = graph
        self._function = function
        self._execute = executable._execute
        self._times = threading.local()
        executable._execute = self._run

    def _run(self, buffers: list[Any]) -> Any:
        self._times.begin = time.perf_counter()
        try:
            return self._execute(buffers)
        finally:
            self._times.end = time.perf_counter()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        times = self._times
        start = times.begin = times.end = time.perf_counter()
        try:
            return self._function(arguments)
        finally:
            end = time.perf_counter()
            graph = self._graph
            with graph.lock:
                graph.calls += 1
                graph.bind += times.begin - start
                graph.run += times.end - times.begin
                graph.rebuild += end - times.end
            say(
                f"torch_max_backend: call of graph {graph.number}: {_ms(end - start)} ms "
                f"(bind {_ms(times.begin - start)}, run {_ms(times.end - times.begin)}, "
                f"rebuild {_ms(end - times.end)})"
            )


def counted(graph: Graph, eager: Function) -> Function:
    """What serves until the graph is compiled, counted."""

    def serve(arguments: list[Any]) -> list[Any]:
        with graph.lock:
            graph.eager += 1
        return eager(arguments)

    return serve


def table() -> str:
    """The graphs so far: what they are, seconds by stage, and milliseconds of their calls."""
    known = graphs()
    served = any(g.eager for g in known)
    rows = [["graph", "operators", "origin", *STAGES, *_CALLS, *(["eager"] if served else [])]]
    for g in known:
        operators = "-" if g.operators is None else str(g.operators)
        rows.append([str(g.number), operators, g.origin, *_figures([g], served)])
    operators = str(sum(g.operators or 0 for g in known))
    rows.append(["total", operators, "", *_figures(known, served)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        # Text to the left, numbers to the right.
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[2] = row[2].ljust(widths[2])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _figures(graphs: list[Graph], served: bool) -> list[str]:
    cells = []
    for stage in STAGES:
        times = [g.clock.seconds[stage] for g in graphs if stage in g.clock.seconds]
        cells.append(f"{sum(times):.3f}" if times else "-")
    calls = sum(g.calls for g in graphs)
    cells.append(str(calls))
    if calls:
        total = sum(g.total for g in graphs)
        cells += [_ms(total), _ms(total / calls)]
        cells += [_ms(sum(getattr(g, part) for g in graphs) / calls) for part in _CALLS[3:]]
    else:
        cells += ["-"] * (len(_CALLS) - 1)
    return [*cells, str(sum(g.eager for g in graphs))] if served else cells


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _say_table() -> None:
    say(
        "torch_max_backend: graphs of this process; stages in seconds; total, mean and its parts "
        "bind, run and rebuild in milliseconds\n" + table()
    )
    for graph in graphs():
        found = graph.steps() if graph.steps is not None else ""
        if found:
            say(f"torch_max_backend: steps of graph {graph.number}\n{found}")


@fork_safety.in_child
def _in_child() -> None:
    """The table is the parent's."""
    _graphs.clear()
    atexit.unregister(_say_table)
