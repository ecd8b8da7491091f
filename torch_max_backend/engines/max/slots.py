"""The inputs of a compiled model: buffers of arguments, constants, sizes, numbers and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_max_backend.engines.max.buffers import plain, to_buffer
from torch_max_backend.runtime.seeds import draw


class Slot:
    """One input of the model.

    Attributes:
        static: Whether its memory rarely changes.
        kept: The buffer that it will use again, if any.
    """

    __slots__ = ()
    static = False
    kept: Any = None

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        """The buffer for one call. A tensor that the model writes to but cannot reach in place is
        appended to ``pending`` with the copy that stands in for it."""
        raise NotImplementedError


class Argument(Slot):
    __slots__ = ("cached", "index", "mutated", "order", "static")

    def __init__(
        self, index: int, mutated: bool, static: bool, order: tuple[int, ...] | None
    ) -> None:
        self.index = index
        self.order = order
        self.mutated = mutated
        self.static = static
        self.cached: tuple[int, Any, Any, Any, Any] | None = None

    @property
    def kept(self) -> Any:
        cached = self.cached
        return None if cached is None else cached[4]

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        tensor = arguments[self.index]
        cached = self.cached
        if (
            cached is not None
            and cached[0] == tensor.data_ptr()
            and cached[1] == tensor.shape
            and cached[2] == tensor.stride()
            and cached[3] is tensor.dtype
        ):
            return cached[4]
        view = tensor if self.order is None else tensor.permute(self.order)
        contiguous = plain(view)
        if self.mutated and contiguous is not view:
            pending.append((view, contiguous))
        buffer = to_buffer(contiguous)
        if self.static:
            kept = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, buffer
            self.cached = kept if contiguous is view else None
        return buffer


class Fixed(Slot):
    __slots__ = ("kept",)
    static = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.kept = to_buffer(plain(tensor.detach()))

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return self.kept


class Carrier(Slot):
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return to_buffer(torch.empty((numbers[self.number], 0), dtype=torch.int8))


class Scalar(Slot):
    __slots__ = ("dtype", "number")

    def __init__(self, number: int, dtype: torch.dtype) -> None:
        self.number = number
        self.dtype = dtype

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return to_buffer(torch.tensor(numbers[self.number], dtype=self.dtype))


class Seed(Slot):
    __slots__ = ("device",)

    def __init__(self, device: str) -> None:
        self.device = device

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return to_buffer(draw(self.device))
