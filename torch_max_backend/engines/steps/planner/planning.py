"""The stages of planning, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch_max_backend.engines.steps.planner.assembled import read_through
from torch_max_backend.engines.steps.planner.code import Code, key
from torch_max_backend.engines.steps.planner.fusion import fused
from torch_max_backend.engines.steps.planner.graph import StepGraph, Value
from torch_max_backend.engines.steps.planner.groups import Group
from torch_max_backend.engines.steps.planner.in_place import write_in_place
from torch_max_backend.engines.steps.planner.instances import instance_of, is_own
from torch_max_backend.engines.steps.planner.lowering import lowered
from torch_max_backend.engines.steps.planner.plan import (
    JumpStep,
    KernelStep,
    Memory,
    Place,
    Plan,
    ProgramStep,
    SizeText,
    Step,
    Then,
)
from torch_max_backend.engines.steps.planner.recomputed import recompute
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.sizes import (
    Size,
    Sizes,
    names_in,
    product,
    symbols_of,
)
from torch_max_backend.engines.steps.planner.stages import cut
from torch_max_backend.engines.steps.planner.tasks import (
    Branch,
    Kernel,
    Loop,
    Lowered,
    Pointwise,
    Reduce,
    Task,
)
from torch_max_backend.engines.steps.planner.views import View
from torch_max_backend.engines.steps.program_libraries import unsupported
from torch_max_backend.engines.steps.programs import Instruction, Program
from torch_max_backend.engines.steps.shells import unavailable
from torch_max_backend.errors import LibraryError


def plan_of(graph: StepGraph) -> Plan:
    """The plan of a graph, with those that follow once sizes are counted.

    Raises:
        NotPlanned: An operation has no step, or a size that data decides is no count.
    """
    halves = cut(graph)
    if halves is None:
        return _one(graph)
    refused: list[tuple[Any, str]] = []
    plans = []
    for make, part in ((_one, halves.first), (plan_of, halves.rest)):
        try:
            plans.append(make(part))
        except NotPlanned as e:
            refused += e.all
    if refused:
        raise NotPlanned(refused[0][1], refused[0][0], list(dict.fromkeys(refused)))
    plan, then = plans
    return replace(plan, then=Then(then, tuple(halves.names), tuple(halves.results)))


def _one(graph: StepGraph) -> Plan:
    """The plan of a graph, all sizes of which are known before it runs."""
    work = lowered(graph)
    buffers = {graph.inputs[i] for i in graph.mutable}
    work.tasks = _used(work.tasks, set(work.outputs) | buffers)
    read_through(work, graph.inputs)
    write_in_place(work, graph)
    return _Planning(graph, work).run()


def _used(tasks: list[Task], wanted: set[Value]) -> list[Task]:
    """The tasks on which some memory depends, and those that check something."""
    writers: dict[Value, list[Task]] = {}
    for task in tasks:
        for view in task.writes:
            writers.setdefault(view.root, []).append(task)
    waiting = [t for root in wanted for t in writers.get(root, ())]
    waiting += [t for t in tasks if _checks(t)]
    used = set()
    while waiting:
        task = waiting.pop()
        if task in used:
            continue
        used.add(task)
        waiting += task.after
        for view in task.reads:
            waiting += writers.get(view.root, ())
    for task in used:
        if isinstance(task, Branch):
            kept = {view.root for view in task.results}
            task.chosen, task.otherwise = _used(task.chosen, kept), _used(task.otherwise, kept)
        elif isinstance(task, Loop):
            task.condition = _used(task.condition, {task.flag.root})
            task.body = _used(task.body, {view.root for view in task.results})
    return [t for t in tasks if t in used]


def _checks(task: Task) -> bool:
    if isinstance(task, (Branch, Loop)):
        return any(_checks(inner) for block in task.blocks for inner in block)
    return isinstance(task, Kernel) and task.symbol in _CHECKING


# Kernels that raise for values that are wrong: they run though nothing reads their result.
_CHECKING = frozenset({"tmb_checked", "tmb_check_info", "tmb_assert"})


class _Planning:
    def __init__(self, graph: StepGraph, work: Lowered) -> None:
        self.graph = graph
        self.work = work
        self.numbers: dict[Value, int] = {}
        self.order: list[Value] = []
        self.live: dict[Value, list[int]] = {}
        self.symbols = symbols_of(v.shape for v in graph.inputs)
        self.steps: list[Step] = []
        # Memory that is written more than once, and what others than readers in sight need.
        self.changing = set(graph.inputs)
        self.shared = {*work.outputs, *graph.inputs}

    def run(self) -> Plan:
        self._add(self.work.tasks)
        steps = self.steps
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
            {
                self.numbers[v]: (_text(start), _text(step))
                for v, (start, step) in self.work.ranges.items()
                if v in self.numbers
            },
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
        root = self.work.aliases.get(view.root, view.root)
        self.live.setdefault(root, []).append(step)
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

    def _add(self, tasks: list[Task]) -> None:
        """Append the steps of tasks."""
        groups = fused(tasks, self.work.aliases)
        recompute(groups, self.shared | self.changing, self.work.aliases)
        readers: dict[Value, set[Group]] = {}
        for group in groups:
            for task in group.tasks:
                for view in task.reads:
                    readers.setdefault(view.root, set()).add(group)
        for group in groups:
            self.readers = readers
            first = group.tasks[0]
            if isinstance(first, Branch):
                self._branch(first)
            elif isinstance(first, Loop):
                self._loop(first)
            elif isinstance(first, Kernel):
                self.steps.append(self._kernel(len(self.steps), first))
            elif any(self._is_stored(task, group) for task in group.tasks):
                # Nothing is left of a pass whose results nobody reads.
                self.steps.append(self._program(len(self.steps), group))

    def _branch(self, task: Branch) -> None:
        results = {view.root for view in task.results}
        self.changing |= results
        self.shared |= results
        choice = self._jump([task.flag], task)
        self._add(task.chosen)
        if task.otherwise:
            end = self._jump([], task)
            self._aim(choice)
            self._add(task.otherwise)
            self._aim(end)
        else:
            self._aim(choice)

    def _loop(self, task: Loop) -> None:
        carried = {view.root for view in task.results}
        self.changing |= carried
        self.shared |= carried | {task.flag.root}
        self._add(task.before)
        start = len(self.steps)
        self._add(task.condition)
        end = self._jump([task.flag], task)
        self._add(task.body)
        last = self._jump([], task)
        self._aim(last, start)
        self._aim(end)
        for root, live in self.live.items():
            # What comes from before a round, or goes on to the next, stays for all of them.
            if max(live) >= start and (min(live) < start or root in carried):
                live += [start, last]

    def _jump(self, flag: list[View], task: Branch | Loop) -> int:
        number = len(self.steps)
        places = tuple(self._place(view, number) for view in flag)
        self.steps.append(JumpStep(0, places, _origin([task])))
        return number

    def _aim(self, jump: int, target: int | None = None) -> None:
        """Set where a jump leads: to what comes next, if nothing else is said."""
        target = len(self.steps) if target is None else target
        step = self.steps[jump]
        assert isinstance(step, JumpStep)
        self.steps[jump] = replace(step, target=target)

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
        inputs = self._outside(group)
        outputs: list[int] = []
        places: list[View] = []
        reductions: list[tuple[str, int]] = []
        reduced: list[View] = []
        code = Code(inputs)
        for task in group.tasks:
            operands = tuple(code.operand(v) for v in group.reads[task])
            if isinstance(task, Reduce):
                reductions.append((task.kind, operands[0]))
                reduced.append(group.writes[task])
                continue
            assert isinstance(task, Pointwise)
            value = operands[0]
            if task.name != "copy":
                value = code.add(Instruction(task.name, task.dtype, operands))
            if self._is_own(task, group):
                code.made[task.to.root] = value
            if self._is_stored(task, group):
                outputs.append(value)
                places.append(group.writes[task])
        program = Program(
            tuple(v.dtype for v in inputs),
            tuple(code.instructions),
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

    def _outside(self, group: Group) -> list[View]:
        """What a program reads that it does not make itself, each once."""
        members = {t.to.root for t in group.tasks if isinstance(t, Pointwise)}
        made: set[Value] = set()
        found: dict[Any, View] = {}
        for task in group.tasks:
            for view in group.reads[task]:
                if isinstance(view, View) and view.root not in members & made:
                    found.setdefault(key(view), view)
            if isinstance(task, Pointwise) and self._is_own(task, group):
                made.add(task.to.root)
        return list(found.values())

    def _is_own(self, task: Pointwise, group: Group) -> bool:
        """Whether a task makes all of a temporary, so that others of its pass may take the value
        from a register."""
        root = task.to.root
        return product(task.to.shape) == product(root.shape) and root not in self.changing

    def _is_stored(self, task: Task, group: Group) -> bool:
        if not isinstance(task, Pointwise):
            return True
        root = task.to.root
        if root in self.shared or root in self.work.aliases:
            return True
        if product(task.to.shape) != product(root.shape):
            return True
        return any(task not in g.tasks for g in self.readers.get(root, ()))

    # Symbols

    def _check_symbols(self) -> None:
        known = self.symbols.keys()
        for value in self.order:
            for size in value.shape:
                unknown = names_in(size) - known
                if unknown:
                    raise NotPlanned(
                        "a size that depends on data",
                        None if value.node is None else value.node.origin,
                    )


def _text(size: Size) -> SizeText:
    return size if isinstance(size, int) else str(size)


def _texts(sizes: Sizes) -> tuple[SizeText, ...]:
    return tuple(_text(s) for s in sizes)


def _origin(tasks: Iterable[Task]) -> str:
    names = dict.fromkeys(str(t.origin) for t in tasks if t.origin is not None)
    return ", ".join(names)
