"""Which kernels of a plan take a weight in panels, and what packs it: the same kernel packs at each
call otherwise."""

from __future__ import annotations

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
        text = (
            f"{symbol} {dtype} {size} {source.dtype} {replace(weight, memory=0)} {tuple(numbers)}"
        )
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
    a, b, bias, routine, _, ta, tb = step.inputs
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
    parameters = {"activation": step.parameters["activation"]}
    inputs = (a, panels, bias, ta)
    return replace(step, symbol="tmb_packed_matmul", parameters=parameters, inputs=inputs)


def _pays(rows: SizeText, by_library: bool) -> bool:
    """Whether so many rows are multiplied faster with panels."""
    if not isinstance(rows, int):
        return not by_library
    most = _MOST_AVX512 if "avx512f" in flags() else _MOST
    return rows >= _FEWEST and (rows <= most or not by_library)


def _ints(sizes: Collection[SizeText]) -> list[int]:
    return [n for n in sizes if isinstance(n, int)]


_KERNELS: Mapping[str, Callable[[_Packing, KernelStep], KernelStep]] = {"tmb_matmul": _matmul}
