"""``mode="reduce-overhead"`` on a GPU: kernel launches are captured once and replayed.

A replay launches what was captured, on the memory that was captured: arguments are copied there,
results from there. What the host does in a model is not repeated, so a graph is trusted only after
its replay of other arguments has given what a plain run gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_max_backend.engines.max.buffers import to_tensor
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.log import get_logger

if TYPE_CHECKING:
    from max.driver import Buffer
    from max.engine import Model

log = get_logger("device_graph")

# Each shape of the arguments is a graph of its own, which holds memory for all of its values.
MOST_GRAPHS = 8

# How far a replay may be from a plain run: sums over atomics differ between runs.
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-9}


def replayable(signature: Signature) -> bool:
    """Whether a model may be replayed: the host has no part in a run, and no run changes what the
    next one sees."""
    only_tensors = all(i.kind in ("tensor", "constant") and not i.mutated for i in signature.inputs)
    return only_tensors and not (signature.data_symbols or signature.checks or signature.copy_back)


class DeviceGraphs:
    """In the place of a model's ``_execute_device_tensors``.

    For each shape of the arguments the first call runs plainly, the second captures, the third
    replays and is compared; from then on calls are replays. Whatever fails leaves the plain runs.

    Args:
        model: The compiled model.
        execute: Runs it plainly.
        moving: Positions of the inputs whose memory changes from call to call.
    """

    def __init__(
        self,
        model: Model,
        execute: Callable[[list[Buffer]], list[Buffer]],
        moving: Sequence[int],
    ) -> None:
        self._model = model
        self._plain = execute
        self._moving = moving
        self._graphs: dict[tuple[Any, ...], _Graph | None] = {}
        self._given_up = False

    def __call__(self, buffers: list[Buffer]) -> list[Buffer]:
        if self._given_up or not buffers or any(b.is_host for b in buffers):
            return self._plain(buffers)
        key = self._key(buffers)
        if key not in self._graphs:
            if len(self._graphs) < MOST_GRAPHS:
                self._graphs[key] = None
            return self._plain(buffers)
        graph = self._graphs[key]
        try:
            if graph is None:
                self._graphs[key] = _Graph(self._model, len(self._graphs), buffers, self._moving)
                return self._plain(buffers)
            results = graph.replay(buffers)
        except Exception as e:
            return self._without(buffers, f"MAX could not capture or replay a graph: {e}")
        if not graph.trusted:
            expected = self._plain(buffers)
            if not all(map(_agree, results, expected)):
                return self._without(buffers, "a replayed graph gave other results than a run")
            graph.trusted = True
        return results

    def _key(self, buffers: Sequence[Buffer]) -> tuple[Any, ...]:
        moving = set(self._moving)
        return tuple(
            tuple(b.shape) if i in moving else b._data_ptr() for i, b in enumerate(buffers)
        )

    def _without(self, buffers: list[Buffer], why: str) -> list[Buffer]:
        log.warning('mode="reduce-overhead" has no effect on a graph: %s', why)
        self._given_up = True
        self._graphs.clear()
        return self._plain(buffers)


class _Graph:
    """A captured graph with the memory that it reads and writes.

    Attributes:
        trusted: Whether a replay of other arguments gave what a plain run gives.
    """

    def __init__(
        self, model: Model, number: int, buffers: Sequence[Buffer], moving: Sequence[int]
    ) -> None:
        self.trusted = False
        self._model = model
        self._number = number
        self._moving = moving
        self._lock = threading.Lock()
        self._inputs = list(buffers)
        for i in moving:
            self._inputs[i] = buffers[i].copy()
        self._results = model.capture(number, *self._inputs)

    def replay(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Results of these arguments, in memory of their own."""
        from max.driver import batch_inplace_copy

        with self._lock:
            batch_inplace_copy(
                [self._inputs[i] for i in self._moving], [buffers[i] for i in self._moving]
            )
            self._model.replay(self._number, *self._inputs)
            return [result.copy() for result in self._results]


def _agree(result: Buffer, expected: Buffer) -> bool:
    ours, theirs = to_tensor(result), to_tensor(expected)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    tolerance = _TOLERANCE.get(ours.dtype, 1e-4)
    scale = theirs.nan_to_num(0, 0, 0).abs().max().item() if theirs.numel() else 0.0
    return torch.allclose(ours, theirs, tolerance, tolerance * scale, equal_nan=True)
