"""Order between torch's streams and MAX's, on a GPU, without the host waiting for either.

MAX runs models and frees memory on a stream of its own. What torch has enqueued on its current
stream comes before the model, and what it enqueues there later comes after: arguments are whole,
results too, and memory that either of them frees is used again in order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from max.driver import Buffer


class Order:
    """The order of one device's streams.

    Args:
        index: The device's number.
    """

    def __init__(self, index: int) -> None:
        from max.driver import Accelerator

        queue = Accelerator(index).default_queue
        self._index = index
        self._stream = torch.cuda.ExternalStream(queue.native_stream_handle, index)
        self._events = _Events()

    def before(self) -> None:
        """Have MAX's stream wait for what torch has enqueued."""
        event = self._events.before
        event.record(torch.cuda.current_stream(self._index))
        self._stream.wait_event(event)

    def after(self) -> None:
        """Have torch's stream wait for what MAX has enqueued."""
        event = self._events.after
        event.record(self._stream)
        torch.cuda.current_stream(self._index).wait_event(event)


class _Events(threading.local):
    """A thread's own: another thread may not record one that is not waited for yet."""

    def __init__(self) -> None:
        self.before = torch.cuda.Event()
        self.after = torch.cuda.Event()


def orders_of(buffers: Iterable[Buffer]) -> tuple[Order, ...]:
    """The orders of the GPUs that buffers are on."""
    return tuple(_order(i) for i in sorted({b.device.id for b in buffers if not b.is_host}))


@cache
def _order(index: int) -> Order:
    return Order(index)
