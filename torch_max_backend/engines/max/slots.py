"""The inputs of a compiled model: buffers of arguments, constants, sizes, numbers and seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from torch_max_backend.engines.max.buffers import plain, to_buffer
from torch_max_backend.errors import ExecutionError
from torch_max_backend.gemm_providers.choice import routine
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.runtime.seeds import draw

_SCALAR_DTYPES = {"int64": torch.int64, "float64": torch.float64, "bool": torch.bool}


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


class _Argument(Slot):
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


class _Fixed(Slot):
    __slots__ = ("kept",)
    static = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.kept = to_buffer(plain(tensor.detach()))

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return self.kept


class _Carrier(Slot):
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        size = numbers[self.number]
        if size < 0:
            raise ExecutionError(
                f"A number that the graph takes as a symbolic size is {size}, and what MAX has "
                "compiled takes no negative one.",
                "Compile for that number (dynamic=False), or use the steps engine.",
            )
        return to_buffer(torch.empty((size, 0), dtype=torch.int8))


class _Scalar(Slot):
    __slots__ = ("dtype", "number")

    def __init__(self, number: int, dtype: torch.dtype) -> None:
        self.number = number
        self.dtype = dtype

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return to_buffer(torch.tensor(numbers[self.number], dtype=self.dtype))


class _Seed(Slot):
    __slots__ = ("device",)

    def __init__(self, device: str) -> None:
        self.device = device

    def buffer(self, arguments: list[Any], numbers: Sequence[Any], pending: list[Any]) -> Any:
        return to_buffer(draw(self.device))


def slots_of(
    signature: Signature, constants: Mapping[str, torch.Tensor], static: Collection[int]
) -> list[Slot]:
    """A slot for each input of a model; the arguments as of ``Executable``."""
    slots: list[Slot] = []
    scalar = 0
    for item in signature.inputs:
        if item.kind == "tensor":
            slots.append(_Argument(item.index, item.mutated, item.index in static, item.order))
        elif item.kind == "constant":
            slots.append(_Fixed(constants[item.source]))
        elif item.kind == "address":
            slots.append(_Fixed(torch.tensor(routine(item.source))))
        elif item.kind == "seed":
            slots.append(_Seed(item.source))
        elif item.kind == "carrier":
            slots.append(_Carrier(scalar))
            scalar += 1
        else:
            slots.append(_Scalar(scalar, _SCALAR_DTYPES[item.dtype]))
            scalar += 1
    return slots
