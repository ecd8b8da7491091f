"""Executables without a compiled model, for tests of binding."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def executable(
    model: Callable[[list[Any]], list[Any]],
    *,
    inputs: list[Any],
    outputs: list[Any],
    layouts: list[Any] | None = None,
    constants: dict[str, Tensor] | None = None,
    static: tuple[int, ...] = (),
    **rest: Any,
) -> Any:
    from torch_max_backend.engines.max.executable import Executable
    from torch_max_backend.graph.signature import ModelInput, Output, Signature
    from torch_max_backend.graph.signature_schema import Layout

    values = {o[1] for o in outputs if o[0] == "value"}
    signature = Signature(
        arguments=len(inputs),
        inputs=[ModelInput(*i) for i in inputs],
        outputs=[Output(*o) for o in outputs],
        layouts=[Layout()] * len(values) if layouts is None else layouts,
        **rest,
    )
    stand_in = SimpleNamespace(_execute_device_tensors=model)
    return Executable(stand_in, signature, constants or {}, static)


class Recorder:
    """A model without outputs that keeps the buffers of its calls."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def __call__(self, buffers: list[Any]) -> list[Any]:
        self.calls.append(list(buffers))
        return []

    def pointer(self, index: int = 0) -> int:
        return self.calls[-1][index]._data_ptr()


def fresh(*shape: int) -> Any:
    """A buffer of a model's own memory."""
    from max.driver import Buffer

    return Buffer.from_dlpack(torch.zeros(shape))
