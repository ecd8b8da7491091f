"""The stages of planning, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch_max_backend.engines.steps.instances import instance_of, is_own
from torch_max_backend.engines.steps.planner.fusion import Group, fused
from torch_max_backend.engines.steps.planner.graph import StepGraph, Value
from torch_max_backend.engines.steps.planner.in_place import write_in_place
from torch_max_backend.engines.steps.planner.lowering import lowered
from torch_max_backend.engines.steps.planner.plan import (
    KernelStep,
    Memory,
    Place,
    Plan,
    ProgramStep,
    SizeText,
    Step,
)
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.sizes import Expr, Size, Sizes, product
from torch_max_backend.engines.steps.planner.tasks import Kernel, Lowered, Pointwise, Reduce, Task
from torch_max_backend.engines.steps.planner.views import View
from torch_max_backend.engines.steps.programs import Instruction, Program, unsupported
from torch_max_backend.engines.steps.shells import unavailable
from torch_max_backend.errors import LibraryError


def plan_of(graph: StepGraph) -> Plan:
    """The plan of a graph.

    Raises:
        NotPlanned: An operation has no step, or a size is known only after a step has run.
    """
    work = lowered(graph)
    work.tasks = _used(work.tasks, set(work.outputs), graph)
    write_in_place(work, graph)
    groups = fused(work.tasks, work.aliases)
    return _Planning(graph, work, groups).run()


def _used(tasks: list[Task], outputs: set[Value], graph: StepGraph) -> list[Task]:
    """The tasks on which a result depends."""
    writers: dict[Value, list[Task]] = {}
    for task in tasks:
        for view in task.writes:
            writers.setdefault(view.root, []).append(task)
    buffers = {graph.inputs[i] for i in graph.mutable}
    waiting = [t for root in outputs | buffers for t in writers.get(root, ())]
    waiting += [t for t in tasks if isinstance(t, Kernel) and t.symbol in _CHECKING]
    used = set()
    while waiting:
        task = waiting.pop()
        if task in used:
            continue
        used.add(task)
        waiting += task.after
        for view in task.reads:
            waiting += writers.get(view.root, ())
    return [t for t in tasks if t in used]


# Kernels that raise for values that are wrong: they run though nothing reads their result.
_CHECKING = frozenset({"tmb_checked", "tmb_check_info"})


class _Planning:
    def __init__(self, graph: StepGraph, work: Lowered, groups: list[Group]) -> None:
        self.graph = graph
        self.work = work
        self.groups = groups
        self.numbers: dict[Value, int] = {}
        self.order: list[Value] = []
        self.live: dict[Value, list[int]] = {}
        self.symbols = _symbols(graph)

    def run(self) -> Plan:
        readers: dict[Value, set[Group]] = {}
        for group in self.groups:
            for task in group.tasks:
                for view in task.reads:
                    readers.setdefault(view.root, set()).add(group)
        self.readers = readers
        steps = [self._step(i, group) for i, group in enumerate(self.groups)]
        for value in self.work.outputs:
            self._number(value)
        self._check_symbols()
        constants: list[Any] = []
        memory = [self._memory(v, constants) for v in self.order]
        return Plan(
            steps,
            memory,
            constants,
            {self.numbers[v]: _texts(s) for v, s in self.work.sizes.items() if v in self.numbers},
            {self.numbers[v]: _texts(s) for v, s in self.work.ranges.items() if v in self.numbers},
            [
                (v.dtype, _texts(shape))
                for v, shape in zip(self.work.outputs, self.work.shapes, strict=True)
            ],
            [(_text(a), _text(b)) for a, b in self.work.checks],
            self.symbols,
        )

    # Memory

    def _number(self, value: Value) -> int:
        value = self.work.aliases.get(value, value)
        if value not in self.numbers:
            self.numbers[value] = len(self.order)
            self.order.append(value)
        return self.numbers[value]

    def _place(self, view: View, step: int) -> Place:
        number = self._number(view.root)
        self.live.setdefault(view.root, []).append(step)
        return Place(number, _texts(view.shape), _texts(view.strides), _text(view.offset))

    def _memory(self, value: Value, constants: list[Any]) -> Memory:
        size = _text(product(value.shape))
        outputs = self.work.outputs
        if value in outputs:
            return Memory("output", value.dtype, size, outputs.index(value))
        if value in self.work.constants:
            constants.append(self.work.constants[value])
            return Memory("constant", value.dtype, size, len(constants) - 1)
        if value in self.work.sizes:
            return Memory("sizes", value.dtype, size)
        if value in self.work.ranges:
            return Memory("range", value.dtype, size)
        if value in self.graph.inputs:
            return Memory("input", value.dtype, size, list(self.graph.inputs).index(value))
        live = self.live.get(value, [0])
        return Memory("temporary", value.dtype, size, 0, min(live), max(live))

    # Steps

    def _step(self, number: int, group: Group) -> Step:
        first = group.tasks[0]
        if isinstance(first, Kernel):
            return self._kernel(number, first)
        return self._program(number, group)

    def _kernel(self, number: int, task: Kernel) -> KernelStep:
        owner = ""
        if not is_own(task.symbol) and task.origin is not None:
            owner = str(task.origin.target)
        step = KernelStep(
            task.symbol,
            task.parameters,
            tuple(self._place(v, number) for v in task.outputs),
            tuple(self._place(v, number) for v in task.inputs),
            _origin([task]),
            owner,
        )
        kinds = [Memory("", v.dtype, 0) for v in self.order]
        try:
            reason = unavailable(instance_of(step, kinds))
        except LibraryError as e:
            reason = str(e)
        if reason:
            raise NotPlanned(f"the kernel {task.symbol}: {reason}", task.origin)
        return step

    def _program(self, number: int, group: Group) -> ProgramStep:
        inputs: list[View] = []
        keys: dict[Any, int] = {}
        instructions: list[Instruction] = []
        made: dict[Value, int] = {}
        outputs: list[int] = []
        places: list[View] = []
        reductions: list[tuple[str, int]] = []
        reduced: list[View] = []
        members = {t.to.root for t in group.tasks if isinstance(t, Pointwise)}

        # The views from outside come first: their count decides the numbers of instructions.
        for task in group.tasks:
            for view in group.reads[task]:
                if not isinstance(view, View) or view.root in members & made.keys():
                    continue
                key = (view.root, view.offset, view.strides)
                if key not in keys:
                    keys[key] = len(inputs)
                    inputs.append(view)
            if isinstance(task, Pointwise) and self._is_own(task, group):
                made[task.to.root] = -1
        made.clear()
        base = len(inputs)
        constants: dict[tuple[Any, str], int] = {}

        def constant(value: Any, dtype: str) -> int:
            key = (repr(value), dtype)
            if key not in constants:
                instructions.append(Instruction("constant", dtype, (), value))
                constants[key] = base + len(instructions) - 1
            return constants[key]

        def operand(view: Any) -> int:
            if not isinstance(view, View):
                return constant(view.value, view.dtype)
            if view.root in made:
                return made[view.root]
            return keys[view.root, view.offset, view.strides]

        for task in group.tasks:
            operands = tuple(operand(v) for v in group.reads[task])
            if isinstance(task, Reduce):
                reductions.append((task.kind, operands[0]))
                reduced.append(group.writes[task])
                continue
            if task.name == "copy":
                value = operands[0]
            else:
                instructions.append(Instruction(task.name, task.dtype, operands))
                value = base + len(instructions) - 1
            if self._is_own(task, group):
                made[task.to.root] = value
            if self._is_stored(task, group):
                outputs.append(value)
                places.append(group.writes[task])
        program = Program(
            tuple(v.dtype for v in inputs),
            tuple(instructions),
            tuple(outputs),
            tuple(reductions),
        )
        missing = [" ".join(key) for key in unsupported(program)]
        if missing:
            raise NotPlanned(f"the instruction {', '.join(missing)}", group.tasks[0].origin)
        return ProgramStep(
            program,
            _texts(group.space),
            1 if reductions else 0,
            tuple(self._place(v, number) for v in inputs),
            tuple(self._place(v, number) for v in [*places, *reduced]),
            _origin(group.tasks),
        )

    def _is_own(self, task: Pointwise, group: Group) -> bool:
        """Whether a task makes all of a temporary, so that others of its pass may take the value
        from a register."""
        root = task.to.root
        return product(task.to.shape) == product(root.shape) and root not in self.graph.inputs

    def _is_stored(self, task: Pointwise, group: Group) -> bool:
        root = task.to.root
        if root in self.work.outputs or root in self.graph.inputs or root in self.work.aliases:
            return True
        if product(task.to.shape) != product(root.shape):
            return True
        return any(g is not group for g in self.readers.get(root, ()))

    # Symbols

    def _check_symbols(self) -> None:
        known = self.symbols.keys()
        for value in self.order:
            for size in value.shape:
                unknown = _names(size) - known
                if unknown:
                    raise NotPlanned(
                        "a size that depends on data",
                        None if value.node is None else value.node.origin,
                    )


def _symbols(graph: StepGraph) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for i, value in enumerate(graph.inputs):
        for axis, size in enumerate(value.shape):
            if isinstance(size, Expr) and len(size.terms) == 1:
                ((atoms, factor),) = size.terms.items()
                if len(atoms) == 1 and factor == 1 and atoms[0].isidentifier():
                    found.setdefault(atoms[0], (i, axis))
    return found


def _names(size: Size) -> set[str]:
    import re

    if isinstance(size, int):
        return set()
    return set(re.findall(r"[A-Za-z_]\w*", str(size)))


def _text(size: Size) -> SizeText:
    return size if isinstance(size, int) else str(size)


def _texts(sizes: Sizes) -> tuple[SizeText, ...]:
    return tuple(_text(s) for s in sizes)


def _origin(tasks: Iterable[Task]) -> str:
    names = dict.fromkeys(str(t.origin) for t in tasks if t.origin is not None)
    return ", ".join(names)
