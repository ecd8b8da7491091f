"""Random graphs, bit by bit beside eager PyTorch.

    uv run python -m tests.engines.steps.fuzz --seconds 3600 [--first SEED] [--engine steps|max]
        [--fuse]

All numbers are small integers, whatever their dtype, so that each order of additions gives the same
bits. As steps, arguments, results and the arena lie between canaries. Prints the seed and the graph
of each failure, and goes on; ends with 1 if there was one. With ``--fuse`` each graph runs twice:
interpreted, and with its programs compiled, those of several graphs together.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.engines.steps.fused_cases import fused_together
from tests.engines.steps.random_graphs import DTYPES, MORE_DTYPES, Graph, graph_of

# Operations of a graph of the command, at most.
MOST = 40
# Graphs whose programs are compiled as one library.
BATCH = 24
MARGIN = 64
CANARY = 0x5A


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy with the strides of a tensor, between canaries, and the bytes of all that memory."""
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    bytes_ = (extent if tensor.numel() else 0) * tensor.itemsize
    memory = torch.full((bytes_ + 2 * MARGIN,), CANARY, dtype=torch.uint8)
    inside = memory[MARGIN : MARGIN + bytes_].view(tensor.dtype)
    copied = inside.as_strided(tensor.shape, tensor.stride())
    return copied.copy_(tensor), memory


def intact(memory: torch.Tensor) -> bool:
    """Whether the canaries of guarded memory live."""
    ends = torch.cat([memory[:MARGIN], memory[-MARGIN:]])
    return bool((ends == CANARY).all())


@contextmanager
def guarded_results(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.Tensor]]:
    """Have all that is allocated lie between canaries: results and arenas; yields their memory."""
    made: list[torch.Tensor] = []
    empty = torch.empty

    def allocated(*shape: Any, dtype: torch.dtype = torch.float32, device: Any = None) -> Any:
        like = empty(*shape, dtype=dtype, device="meta")
        bytes_ = like.numel() * like.itemsize
        memory = torch.full((bytes_ + 2 * MARGIN,), CANARY, dtype=torch.uint8)
        made.append(memory)
        inside = memory[MARGIN : MARGIN + bytes_]
        return inside.view(dtype).as_strided(like.shape, like.stride())

    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", allocated)
        yield made


def _as_steps(graph: Graph, dynamic: bool, fuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_max_backend.ops  # noqa: F401  lowerings
    from torch_max_backend.driver.passes import prepare
    from torch_max_backend.engines.steps.planned import planned
    from torch_max_backend.engines.steps.run import StepExecutable
    from torch_max_backend.graph.decompositions.table import decomposition_table

    expected_arguments = [t.clone() for t in graph.arguments]
    expected = [t.clone() for t in graph(*expected_arguments)]
    module = make_fx(
        graph,
        decomposition_table(),
        "symbolic" if dynamic else "fake",
        _allow_non_fake_inputs=True,
    )(*[t.clone() for t in graph.arguments])
    trace = prepare(module)
    plan = planned(trace)
    executable = StepExecutable(plan, trace.signature, trace.constants(), fuse=fuse)
    given, around = zip(*map(guarded, graph.arguments), strict=True)
    with guarded_results(monkeypatch) as made:
        results = executable(list(given))
    assert all(map(intact, around)), "memory beside an argument was written to"
    assert all(map(intact, made)), "memory beside a result or the arena was written to"
    _same(results, expected)
    _same(given, expected_arguments)
    # And as the code that is written out for calls of these sizes.
    for _ in range(2):
        again = [t.clone(memory_format=torch.preserve_format) for t in graph.arguments]
        _same(executable(list(again)), expected)
        _same(again, expected_arguments)


def _same(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def _compiled(graph: Graph, dynamic: bool) -> None:
    from torch_max_backend import max_backend

    expected_arguments = [t.clone() for t in graph.arguments]
    expected = [t.clone() for t in graph(*expected_arguments)]
    torch._dynamo.reset()
    options = {"engine": "max", "min_ops": 0, "cache": False}
    compiled = torch.compile(graph.__call__, backend=max_backend, dynamic=dynamic, options=options)
    given = [t.clone(memory_format=torch.preserve_format) for t in graph.arguments]
    _same(compiled(*given), expected)
    _same(given, expected_arguments)


def check(
    graph: Graph, seed: int, dynamic: bool, engine: str = "steps", fuse: bool = False
) -> bool:
    """Compare a graph with eager PyTorch.

    Args:
        graph: The graph.
        seed: Of odd ones, passes that read the same memory are one although they are small.
        dynamic: Whether its sizes are symbols.
        engine: ``"steps"`` or ``"max"``.
        fuse: Whether programs of steps are compiled.

    Returns:
        False if it was refused: sizes that torch knows to be equal by a guard, which no expression
        shows.

    Raises:
        AssertionError: It differs; the text has seed and graph.
    """
    from torch_max_backend.engines.steps.planner import fusion
    from torch_max_backend.errors import ConversionError, ExecutionError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fusion, "LARGE", seed % 2)
        try:
            if engine == "steps":
                _as_steps(graph, dynamic, fuse, patched)
            else:
                _compiled(graph, dynamic)
        except Exception as e:
            if dynamic and isinstance(e, ConversionError | ExecutionError):
                return False
            raise AssertionError(f"seed {seed}, dynamic={dynamic}:\n{graph}\n{e}") from e
    return True


def seeds_of(first: int, seconds: float) -> Iterator[int]:
    """Seeds, until the CPU seconds are spent."""
    end = time.process_time() + seconds
    return itertools.takewhile(lambda _: time.process_time() < end, itertools.count(first))


def _in_turn(seeds: Iterator[int], fuse: bool) -> Iterator[int]:
    """The seeds, if ``fuse`` those of a batch twice: while programs are gathered, and compiled."""
    if not fuse:
        yield from seeds
    while some := list(itertools.islice(seeds, BATCH)):
        with fused_together():
            yield from some
        yield from some


def main() -> int:
    """Check graphs for the seconds that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.steps.fuzz")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--engine", choices=("steps", "max"), default="steps")
    parser.add_argument("--fuse", action="store_true", help="once more with compiled programs")
    asked = parser.parse_args()
    dtypes = (*DTYPES, *DTYPES, *MORE_DTYPES)
    done = refused = failed = 0
    for seed in _in_turn(seeds_of(asked.first, asked.seconds), asked.fuse):
        graph = graph_of(seed, dtypes, MOST)
        try:
            found = check(graph, seed, seed % 3 == 0, asked.engine, asked.fuse)
            done, refused = done + found, refused + (not found)
        except AssertionError as e:
            failed += 1
            print(e, flush=True)
    print(f"{done} graphs agree, {refused} were refused, {failed} differ", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
