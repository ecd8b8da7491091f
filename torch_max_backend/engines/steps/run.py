"""A plan as the function that AOTAutograd calls."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import record_function

from torch_max_backend.compat.tensors import profiling
from torch_max_backend.engines.steps import fused
from torch_max_backend.engines.steps.call import written_out
from torch_max_backend.engines.steps.plan_text import times_table
from torch_max_backend.engines.steps.planner.plan import Plan
from torch_max_backend.engines.steps.planner.sizes import dense_strides
from torch_max_backend.engines.steps.table import Sized, Table, Tables
from torch_max_backend.gemm_providers.choice import routine
from torch_max_backend.graph.expressions import evaluator
from torch_max_backend.graph.signature_schema import ModelInput, Signature
from torch_max_backend.process import fork_safety
from torch_max_backend.runtime import huge_pages, large
from torch_max_backend.runtime.results import (
    Rebuild,
    argument_views,
    check,
    execution_error,
    returned,
)
from torch_max_backend.runtime.seeds import draw
from torch_max_backend.runtime.tensors import plain

_RANGE = "torch_max_backend"
# The call of given sizes after which code is written for them, and their programs are compiled; and
# of any sizes at which parameters move to huge pages.
_MANY = 10
_numbers = itertools.count(1)
_C_TYPES: dict[str, Any] = {
    "int64": ctypes.c_int64,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
}
_address = torch.Tensor.data_ptr


@dataclass
class _Inputs:
    """The inputs of a plan, by number.

    Attributes:
        fixed: Tensors that are the same at each call.
        static: Arguments whose memory rarely changes: their positions.
        moving: The other arguments.
        scalars: Numbers as data: which number, and its dtype.
        seeds: Of random numbers: the device.
        carriers: Which number a number or a size is.
    """

    fixed: dict[int, torch.Tensor] = field(default_factory=dict)
    static: list[tuple[int, int]] = field(default_factory=list)
    moving: list[tuple[int, ModelInput]] = field(default_factory=list)
    scalars: list[tuple[int, int, str]] = field(default_factory=list)
    seeds: list[tuple[int, str]] = field(default_factory=list)
    carriers: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, signature: Signature, constants: Mapping[str, torch.Tensor], static: Collection[int]
    ) -> _Inputs:
        """Those of a signature; the arguments as of ``StepExecutable``."""
        found = cls()
        for k, item in enumerate(signature.inputs):
            if item.kind == "tensor":
                if item.index in static and item.order is None and not item.mutated:
                    found.static.append((k, item.index))
                else:
                    found.moving.append((k, item))
            elif item.kind == "constant":
                found.fixed[k] = plain(constants[item.source].detach())
            elif item.kind == "address":
                found.fixed[k] = torch.tensor(routine(item.source), device="cpu")
            elif item.kind == "seed":
                found.seeds.append((k, item.source))
            else:
                number = len(found.carriers)
                if item.kind == "scalar":
                    found.scalars.append((k, number, item.dtype))
                found.carriers[k] = number
        return found


class StepExecutable:
    """Binds torch's arguments to a table, runs it and rebuilds torch's results.

    Called with one list, which it empties (AOTAutograd's boxed convention).

    Args:
        plan: The plan of the graph.
        signature: How the traced graph is called.
        constants: Tensors of the graph that are inputs of the plan, by attribute name.
        static: Positions of arguments whose memory rarely changes (parameters and buffers).
        fuse: Whether programs are compiled: before the first call returns (``True``), never
            (``False``), or in the background once there have been some calls (``None``).

    Raises:
        CompilationError: A kernel cannot be built.
    """

    _boxed_call = True

    def __init__(
        self,
        plan: Plan,
        signature: Signature,
        constants: Mapping[str, torch.Tensor],
        static: Collection[int] = (),
        fuse: bool | None = None,
    ) -> None:
        self._fuse = fuse
        self._number = next(_numbers)
        self._signature = signature
        self._plan = plan
        self._tables = Tables(plan)
        names = list(signature.symbols)
        texts = [i.source for i in signature.inputs if i.kind in ("carrier", "scalar")]
        texts += [o.source for o in signature.outputs if o.kind == "scalar"]
        texts += [text for text, _ in signature.checks]
        self._scalars_from = sum(i.kind in ("carrier", "scalar") for i in signature.inputs)
        self._evaluate = evaluator(texts, names) if texts else None
        sized = any(o.sizes or o.strides for o in signature.layouts)
        self._symbol_sources = [signature.symbols[n] for n in names] if texts or sized else []
        rebuilds = [Rebuild.of(layout, names) for layout in signature.layouts]
        self._rebuilds = rebuilds if any(r is not None for r in rebuilds) else None
        inputs = _Inputs.of(signature, constants, static)
        self._fixed, self._static, self._moving = inputs.fixed, inputs.static, inputs.moving
        self._scalars, self._seeds, carriers = inputs.scalars, inputs.seeds, inputs.carriers
        self._symbols = [
            self._symbol_source(signature, k, axis, carriers) for k, axis in plan.symbols.values()
        ]
        # Those that no written code has answered.
        self._calls = 0
        # A seam for whoever measures.
        self._execute = _run
        self._outputs = [(o.kind, o.index) for o in signature.outputs]
        self._argument_views = argument_views(signature)
        # Whether calls can be written out, and the order of the dims of each result.
        orders = [None if r is None else r.turned for r in rebuilds]
        self._simple = (
            not (self._scalars or self._seeds or signature.copy_back)
            and all(r is None or r.turned is not None for r in rebuilds)
            and all(kind in ("value", "input", "none") for kind, _ in self._outputs)
            and not any(item.mutated and item.order is not None for _, item in self._moving)
        )
        self._turns = orders
        # Whether calls differ in sizes, or are to be checked.
        self._varies = bool(plan.symbols or signature.checks)
        # What answers all calls, once it is written out.
        self._only: Callable[[list[Any]], list[Any]] | None = None
        self._only_values = self._outputs == [("value", i) for i in range(len(plan.outputs))]

    @staticmethod
    def _symbol_source(
        signature: Signature, k: int, axis: int, carriers: Mapping[int, int]
    ) -> tuple[int, int]:
        """The argument and dim that tell a symbol; -1 and the number of an expression."""
        item = signature.inputs[k]
        if item.kind != "tensor":
            return -1, carriers[k]
        return item.index, axis if item.order is None else item.order[axis]

    @property
    def direct(self) -> Callable[[list[Any]], list[Any]] | None:
        """What answers all calls from now on, once that is known."""
        one = self._simple and self._execute is _run and not self._varies
        return self._only if one else self

    def __call__(self, arguments: list[Any]) -> list[Any]:
        call = self._only
        return self._any(arguments) if call is None else call(arguments)

    def _any(self, arguments: list[Any]) -> list[Any]:
        """A call for the sizes that its arguments have."""
        symbols: list[Any] = [
            arguments[i] if axis < 0 else arguments[i].shape[axis]
            for i, axis in self._symbol_sources
        ]
        numbers: Any = () if self._evaluate is None else self._evaluate(*symbols)
        if self._signature.checks:
            check(numbers, self._signature.checks)
        key = [numbers[a] if i < 0 else arguments[i].shape[a] for i, a in self._symbols]
        sized = self._tables.of(tuple(key))
        if sized.call is None:
            return self._general(arguments, sized, symbols, numbers)
        return sized.call(arguments)

    def _general(
        self, arguments: list[Any], sized: Sized, symbols: list[Any], numbers: Any
    ) -> list[Any]:
        if profiling():
            with record_function(f"{_RANGE} steps {self._number}"):
                return self._call(arguments, sized, symbols, numbers)
        if self._fuse and not sized.calls:
            fused.build(sized.programs.values())
            sized.swap()
        self._calls += 1
        if self._calls == _MANY:
            huge_pages.move_later(arguments[i] for _, i in self._static)
        results = self._call(arguments, sized, symbols, numbers)
        if self._calls == 1:
            # Not all that runs once runs again, and optimizers make their state after the first
            # backward pass.
            large.drop_idle()
        sized.calls += 1
        if sized.calls == _MANY and self._fuse is None:
            fused.build_later(sized.programs.values(), sized.swap)
        if sized.calls == _MANY and self._simple and self._execute is _run:
            self._write_out(sized)
        return results

    def _write_out(self, sized: Sized) -> None:
        """Have calls for these sizes answered by code that is written for them."""
        table = sized.free[-1]

        def general(arguments: list[Any]) -> list[Any]:
            return self._general(arguments, sized, [], ())

        sized.call = written_out(
            [(k, item.index, item.order) for k, item in self._moving],
            [i for _, i in self._static],
            (table.inputs, table.outputs),
            [(shape, _dense(shape), dtype) for shape, dtype in sized.outputs],
            self._turns,
            self._outputs,
            self._argument_views,
            sized.free,
            sized.shares,
            general,
            lambda: self._new_table(sized),
            self._bind_static,
            self._error,
        )
        if not self._varies:
            self._only = sized.call

    def _call(
        self, arguments: list[Any], sized: Sized, symbols: list[Any], numbers: Any
    ) -> list[Any]:
        try:
            table = sized.free.pop()
        except IndexError:
            table = self._new_table(sized)
        words = table.words
        if self._static:
            known = [_address(arguments[i]) for _, i in self._static]
            if known != table.known:
                self._bind_static(table, arguments, known)
        pending = []
        held = []
        for k, item in self._moving:
            tensor = arguments[item.index]
            if item.order is not None:
                tensor = tensor.permute(item.order)
            # Lazily negated and conjugated tensors are not what their memory holds.
            if not tensor.is_contiguous() or tensor.is_neg():
                contiguous = plain(tensor)
                if item.mutated:
                    pending.append((tensor, contiguous))
                held.append(contiguous)
                tensor = contiguous
            address = tensor.data_ptr()
            for word, offset in table.inputs.get(k, ()):
                words[word] = address + offset
        for k, number, kind in self._scalars:
            table.numbers[k].value = _C_TYPES[kind](numbers[number]).value
        for k, device in self._seeds:
            seed = draw(device)
            held.append(seed)
            for word, offset in table.inputs.get(k, ()):
                words[word] = seed.data_ptr() + offset
        results = []
        for (shape, dtype), places in zip(sized.outputs, table.outputs, strict=True):
            if large.is_large(shape, dtype):
                result = large.empty(shape, _dense(shape), dtype)
            else:
                # `device`: a default device may be set.
                result = torch.empty(shape, dtype=dtype, device="cpu")
            address = result.data_ptr()
            for word, offset in places:
                words[word] = address + offset
            results.append(result)
        arena = table.enter() if sized.shares else None
        failed = self._execute(table)
        del arena
        if failed >= 0:
            error = self._error(table, failed, arguments)
            sized.free.append(table)
            raise error
        sized.free.append(table)
        return self._rebuild(arguments, results, symbols, numbers, pending)

    def _new_table(self, sized: Sized) -> Table:
        table = Table(sized)
        for k, tensor in self._fixed.items():
            for word, offset in table.inputs.get(k, ()):
                table.words[word] = tensor.data_ptr() + offset
        for k, _, kind in self._scalars:
            number = _C_TYPES[kind](0)
            table.numbers[k] = number
            for word, offset in table.inputs.get(k, ()):
                table.words[word] = ctypes.addressof(number) + offset
        return table

    def _bind_static(self, table: Table, arguments: list[Any], known: list[int]) -> None:
        """Parameters and buffers have moved."""
        dense = True
        for (k, i), address in zip(self._static, known, strict=True):
            tensor = arguments[i]
            if not tensor.is_contiguous() or tensor.is_neg():
                contiguous = plain(tensor.detach())
                table.copies[k] = contiguous
                address, dense = contiguous.data_ptr(), False
            for word, offset in table.inputs.get(k, ()):
                table.words[word] = address + offset
        # A copy is made anew for each call: who knows what has been written to.
        table.known = known if dense else []

    def _error(self, table: Table, row: int, arguments: list[Any]) -> Exception:
        step = self._plan.steps[row]
        text = table.error() or "a kernel failed"
        where = f" (step {row}, {step.origin})" if step.origin else f" (step {row})"
        return execution_error(RuntimeError(text + where), self._signature, arguments)

    def _rebuild(
        self,
        arguments: list[Any],
        results: list[torch.Tensor],
        symbols: list[Any],
        numbers: Any,
        pending: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> list[Any]:
        if self._rebuilds is not None:
            results = [
                result if rebuild is None else rebuild(result, symbols)
                for result, rebuild in zip(results, self._rebuilds, strict=True)
            ]
        for tensor, contiguous in pending:
            tensor.copy_(contiguous)
        for index, k in self._signature.copy_back:
            arguments[index].copy_(results[k])
        if self._only_values:
            arguments.clear()
            return results
        scalars = numbers[self._scalars_from :]
        outputs = returned(self._outputs, results, arguments, scalars, self._argument_views)
        arguments.clear()
        return outputs


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of torch's own."""
    return tuple(max(s, 1) for s in dense_strides(shape) if isinstance(s, int))


def _run(table: Table) -> int:
    return table.run()


def time_steps(executable: StepExecutable) -> Callable[[], str]:
    """Have an executable measure its steps; returns what tells of them so far."""
    plan = executable._plan
    spent = torch.zeros(len(plan.steps), dtype=torch.int64, device="cpu")
    calls = 0

    def run(table: Table) -> int:
        nonlocal calls
        ticks = torch.zeros(len(plan.steps), dtype=torch.int64, device="cpu")
        failed = table.run(ticks)
        spent.add_(ticks)
        calls += 1
        return failed

    executable._execute, executable._only = run, None
    return lambda: times_table(plan, spent.tolist(), calls) if calls else ""


@fork_safety.in_child
def _in_child() -> None:
    """OpenMP's threads are not in a forked child, and what waits for them waits for ever: eager
    operators do as well. Threads that the child starts get a team of their own."""
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
