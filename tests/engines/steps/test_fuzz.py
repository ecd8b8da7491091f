"""Random graphs as steps, bit by bit beside eager PyTorch.

All numbers are small integers, whatever their dtype, so that each order of additions gives the same
bits. Arguments, results and the arena lie between canaries. A failure names the seed; `graph_of`
with that seed prints what was run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.engines.steps.random_graphs import Graph, graph_of

# CPU seconds for all graphs of a test.
SECONDS = 4.0
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


def _checked(graph: Graph, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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
    executable = StepExecutable(plan, trace.signature, trace.constants())
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


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_random_graphs_give_the_bits_of_eager(
    dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_seeds(range(100_000), dynamic, SECONDS, monkeypatch)


def check_seeds(
    seeds: Sequence[int], dynamic: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Check the graphs of seeds until the CPU time is spent; returns how many."""
    from torch_max_backend.engines.steps.planner import fusion
    from torch_max_backend.errors import ConversionError, ExecutionError

    start = time.process_time()
    done = left_out = 0
    for seed in seeds:
        if time.process_time() - start > seconds:
            break
        graph = graph_of(seed)
        # Passes that read the same are one, though these graphs are small.
        monkeypatch.setattr(fusion, "LARGE", seed % 2)
        try:
            _checked(graph, dynamic, monkeypatch)
        except Exception as e:
            # Sizes that torch knows to be equal by a guard, which no expression shows.
            if dynamic and isinstance(e, ConversionError | ExecutionError):
                left_out += 1
                continue
            raise AssertionError(f"seed {seed}, dynamic={dynamic}:\n{graph}\n{e}") from e
        done += 1
    assert left_out <= 1 + done // 10, f"{left_out} of {done + left_out} graphs were refused"
    return done
