"""Which kernels of a plan take a weight in panels, and what packs it: the same kernel packs at each
call otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from torch_max_backend.engines.steps.instructions import bfloat16_unit, flags
from torch_max_backend.engines.steps.planner.plan import (
    KernelStep,
    Memory,
    Pack,
    Place,
    Plan,
    SizeText,
    Step,
)

# Rows of a product from which on panels are read faster than weights as they lie, and up to which a
# library, which cannot take them, is slower. The registers of AVX-512 hold more rows.
_FEWEST, _MOST, _MOST_AVX512 = 3, 96, 224
# Columns that the panels of any processor are a part of, and numbers of a weight worth a panel.
_PANEL, _SMALL = 32, 4096


def packed(plan: Plan, static: Collection[int]) -> Plan:
    """The plan with kernels that take their weights in panels, wherever these are inputs whose
    memory rarely changes.

    Args:
        plan: The plan, which stays as it is.
        static: The numbers of such inputs.
    """
    made = _Packing(plan, static).run()
    if plan.then is not None:
        made = replace(made, then=replace(plan.then, plan=packed(plan.then.plan, static)))
    return made


class _Packing:
    def __init__(self, plan: Plan, static: Collection[int]) -> None:
        self.plan = plan
        self.static = static
        self.memory = list(plan.memory)
        self.packs: list[Pack] = []
        # The memory of each pack, by what it is.
        self.known: dict[tuple[int, str], int] = {}

    def run(self) -> Plan:
        steps = [self._step(step) for step in self.plan.steps]
        return replace(self.plan, steps=steps, memory=self.memory, packs=self.packs)

    def _step(self, step: Step) -> Step:
        change = _KERNELS.get(step.symbol) if isinstance(step, KernelStep) else None
        return step if change is None else change(self, step)  # type: ignore[arg-type]

    def is_weight(self, place: Place) -> bool:
        """Whether a tensor is a weight of known sizes."""
        memory = self.memory[place.memory]
        known = all(isinstance(n, int) for n in (*place.shape, *place.strides, place.offset))
        return known and memory.kind == "input" and memory.index in self.static

    def number(self, place: Place) -> Any:
        """The constant that an operand is; ``None`` if it is none."""
        memory = self.memory[place.memory]
        if memory.kind != "constant" or memory.size != 1:
            return None
        return self.plan.constants[memory.index].item()

    def pack(
        self,
        symbol: str,
        dtype: str,
        size: int,
        weight: Place,
        numbers: Collection[int],
        origin: str,
    ) -> Place:
        """Where the panels of a weight lie, which a kernel makes of it and some numbers."""
        source = self.memory[weight.memory]
        place = replace(weight, memory=0)
        text = f"{symbol} {dtype} {size} {source.dtype} {place} {tuple(numbers)}"
        known = self.known.get((source.index, text))
        if known is None:
            plan = _plan_of(symbol, dtype, size, (source, weight), numbers, origin)
            self.packs.append(Pack(plan, source.index, text))
            known = self.known[source.index, text] = len(self.memory)
            self.memory.append(Memory("packed", dtype, size, len(self.packs) - 1))
        return Place(known, (size,), (1,))


def _plan_of(
    symbol: str,
    dtype: str,
    size: int,
    weight: tuple[Memory, Place],
    numbers: Collection[int],
    origin: str,
) -> Plan:
    """The plan of a pack: a call of a kernel."""
    source, place = weight
    memory = [Memory("output", dtype, size), replace(source, index=0)]
    memory += [Memory("constant", "int64", 1, i) for i in range(len(numbers))]
    inputs = [replace(place, memory=1), *(Place(2 + i, (), ()) for i in range(len(numbers)))]
    step = KernelStep(symbol, {}, (Place(0, (size,), (1,)),), tuple(inputs), origin)
    constants = [torch.tensor(n, device="cpu") for n in numbers]
    return Plan([step], memory, constants, {}, {}, [(dtype, (size,))], [])


def _matmul(packing: _Packing, step: KernelStep) -> KernelStep:
    a, b, bias, routine, _, ta, tb, activation = step.inputs
    dtype = packing.memory[b.memory].dtype
    if not packing.is_weight(b) or b.shape[0] != 1:
        return step
    if step.parameters.get("precision", "ieee") != "ieee":
        return step
    if dtype != packing.memory[a.memory].dtype or not getattr(torch, dtype).is_floating_point:
        return step
    if dtype == "bfloat16" and bfloat16_unit():
        # It is read where it lies.
        return step
    transposed = packing.number(tb)
    n, k = _ints(b.shape[1:] if transposed else b.shape[:0:-1])
    rows = step.outputs[0].shape[1]
    if n * k < _SMALL or not _pays(rows, packing.number(routine) != 0):
        return step
    size = -(-n // _PANEL) * _PANEL * k
    panels = packing.pack("tmb_pack_right", dtype, size, b, [transposed], step.origin)
    inputs = (a, panels, bias, ta, activation)
    return replace(step, symbol="tmb_packed_matmul", parameters={}, inputs=inputs)


def _pays(rows: SizeText, by_library: bool) -> bool:
    """Whether so many rows are multiplied faster with panels."""
    if not isinstance(rows, int):
        return not by_library
    most = _MOST_AVX512 if "avx512f" in flags() else _MOST
    return rows >= _FEWEST and (rows <= most or not by_library)


def _ints(sizes: Collection[SizeText]) -> list[int]:
    return [n for n in sizes if isinstance(n, int)]


# What `tmb_convolution` takes: where its weights come packed, and what follows of numbers.
_PACKED, _SETTINGS = 8, slice(11, 18)
# As ``convolution/packed.mojo`` and ``parts.mojo`` have them: numbers before and behind panels,
# steps of a block of channels, and the fewest outputs of a part for a task.
_HEAD, _BEHIND, _DEPTH, _PART = 16, 16, 384, 16
# Rows of the highest tile of any processor, and positions of a transformed one.
_HIGHEST, _POSITIONS = 14, 16


def _convolution(packing: _Packing, step: KernelStep) -> KernelStep:
    x, weight = step.inputs[:2]
    (result,) = step.outputs
    dtype = packing.memory[weight.memory].dtype
    if not packing.is_weight(weight) or dtype not in ("float32", "float64"):
        return step
    batch, _, *image = x.shape
    pixels = [batch, *image, *result.shape[2:]]
    settings = [packing.number(place) for place in step.inputs[_SETTINGS]]
    numbers = [n for n in (*pixels, *settings) if isinstance(n, int)]
    if len(numbers) != len(pixels) + len(settings) or math.prod(_ints(pixels[1:])) == 1:
        # One pixel is multiplied with weights as they lie.
        return step
    outputs, channels, high, wide = _ints(weight.shape)
    if channels == 1 or outputs * channels * high * wide < _SMALL:
        return step
    size = _panels_size(outputs, channels, high * wide, numbers[-1])
    if (high, wide) == (3, 3) and dtype == "float32":
        size = max(size, _transformed_size(outputs, channels))
    panels = packing.pack("tmb_pack_convolution", dtype, size, weight, numbers, step.origin)
    inputs = (*step.inputs[:_PACKED], panels, *step.inputs[_PACKED + 1 :])
    return replace(step, inputs=inputs)


def _panels_size(outputs: int, channels: int, taps: int, groups: int) -> int:
    """Numbers that panels take at most, however the outputs are cut for tasks."""
    each = outputs // groups
    most = groups * (each // _PART + 1)
    blocks = -(-channels // max(1, min(_DEPTH // taps, channels))) + 1
    return _HEAD + outputs * channels * taps + _BEHIND * most * blocks


def _transformed_size(outputs: int, channels: int) -> int:
    """Numbers that transformed weights take at most."""
    return _HEAD + _POSITIONS * (outputs + _HIGHEST) * (channels + 3 * _BEHIND)


_KERNELS: Mapping[str, Callable[[_Packing, KernelStep], KernelStep]] = {
    "tmb_matmul": _matmul,
    "tmb_convolution": _convolution,
}
