"""A plan as the function that AOTAutograd calls."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.profiler import record_function

from torch_max_backend.compat.tensors import empty_strided, profiling
from torch_max_backend.engines.steps import fused
from torch_max_backend.engines.steps.call import written_out
from torch_max_backend.engines.steps.inputs import Given, Inputs
from torch_max_backend.engines.steps.packing import packed
from torch_max_backend.engines.steps.packs import Packs, version_of
from torch_max_backend.engines.steps.planner.plan import Plan
from torch_max_backend.engines.steps.sized import Sized
from torch_max_backend.engines.steps.table import Table
from torch_max_backend.engines.steps.tables import Tables
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.process import fork_safety
from torch_max_backend.runtime import huge_pages, large
from torch_max_backend.runtime.results import (
    Rebuild,
    argument_views,
    check,
    evaluator_or_none,
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
        pack: Whether kernels read parameters in panels, which are made of them once.

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
        pack: bool = False,
    ) -> None:
        self._fuse = fuse
        self._number = next(_numbers)
        self._signature = signature
        inputs = Inputs.of(signature, constants, static)
        self._fixed, self._static, self._moving = inputs.fixed, inputs.static, inputs.moving
        if pack:
            plan = packed(plan, {k for k, _ in self._static})
        self._plan = plan
        self._tables = Tables(plan)
        self._packs = Packs(plan, self._static)
        rebuilds = self._read_sizes(signature)
        # Where parameters and buffers were when all of them were dense.
        self._dense: list[int] = []
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
            not (self._scalars or self._seeds or signature.copy_back or plan.then)
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

    def _read_sizes(self, signature: Signature) -> list[Rebuild | None]:
        """Find out how the sizes of a call, and the numbers that depend on them, are told; returns
        what the results need them for."""
        names = list(signature.symbols)
        texts = [i.source for i in signature.inputs if i.kind in ("carrier", "scalar")]
        results = [o.source for o in signature.outputs if o.kind == "scalar"]
        results += [text for text, _ in signature.checks]
        self._scalars_from = len(texts)
        # The results that tell the sizes that data decides: what depends on these comes after.
        self._data_sources = list(signature.data_symbols.values())
        after = results if self._data_sources else []
        self._evaluate_after = evaluator_or_none(after, [*names, *signature.data_symbols])
        texts += [] if self._data_sources else results
        self._evaluate = evaluator_or_none(texts, names)
        sized = any(o.sizes or o.strides for o in signature.layouts)
        wanted = bool(texts or self._evaluate_after or sized)
        self._symbol_sources = [signature.symbols[n] for n in names] if wanted else []
        names += signature.data_symbols
        rebuilds = [Rebuild.of(layout, names) for layout in signature.layouts]
        self._rebuilds = rebuilds if any(r is not None for r in rebuilds) else None
        return rebuilds

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
        if self._signature.checks and not self._data_sources:
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
        self._calls += 1
        if self._calls == _MANY:
            huge_pages.move_later(self._packs.all_read([i for _, i in self._static], arguments))
        results = self._call(arguments, sized, symbols, numbers)
        if self._calls == 1:
            # Not all that runs once runs again, and optimizers make their state after the first
            # backward pass.
            large.drop_idle()
        many = sized.calls >= _MANY and sized.call is None
        if many and self._simple and self._execute is _run:
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
            self._packs.positions,
            (table.inputs, table.outputs),
            sized.outputs,
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
        static = [_address(arguments[i]) for _, i in self._static]
        static += [version_of(arguments[i]) for i in self._packs.positions]
        given = Given(len(self._signature.inputs), static)
        for k, item in self._moving:
            tensor = arguments[item.index]
            if item.order is not None:
                tensor = tensor.permute(item.order)
            # Lazily negated and conjugated tensors are not what their memory holds.
            if not tensor.is_contiguous() or tensor.is_neg():
                contiguous = plain(tensor)
                if item.mutated:
                    given.pending.append((tensor, contiguous))
                given.held.append(contiguous)
                tensor = contiguous
            given.addresses.append((k, tensor.data_ptr()))
        for k, device in self._seeds:
            seed = draw(device)
            given.held.append(seed)
            given.addresses.append((k, seed.data_ptr()))
        results = self._results(self._tables, sized, arguments, given, numbers)
        return self._rebuild(arguments, results, symbols, numbers, given.pending)

    def _results(
        self, tables: Tables, sized: Sized, arguments: list[Any], given: Given, numbers: Any
    ) -> list[torch.Tensor]:
        """Run the plan for given sizes, and what follows it for those that it counts."""
        made = self._run_table(sized, arguments, given, numbers)
        then = sized.plan.then
        if then is None:
            return made
        given.add(made)
        following, sizes = tables.after(sized, [t.item() for t in made[-len(then.names) :]])
        rest = self._results(following, sizes, arguments, given, numbers)
        return [(made if before else rest)[k] for before, k in then.results]

    def _run_table(
        self, sized: Sized, arguments: list[Any], given: Given, numbers: Any
    ) -> list[torch.Tensor]:
        """Run one table; its results."""
        if self._fuse and not sized.calls:
            fused.build(sized.programs.values())
            sized.swap()
        try:
            table = sized.free.pop()
        except IndexError:
            table = self._new_table(sized)
        words = table.words
        if given.static != table.known:
            self._bind_static(table, arguments, given.static)
        for k, address in given.addresses:
            for word, offset in table.inputs.get(k, ()):
                words[word] = address + offset
        for k, number, kind in self._scalars:
            table.numbers[k].value = _C_TYPES[kind](numbers[number]).value
        results = []
        for (shape, strides, dtype), places in zip(sized.outputs, table.outputs, strict=True):
            make = large.empty if large.is_large(shape, dtype) else empty_strided
            result = make(shape, strides, dtype)
            address = result.data_ptr()
            for word, offset in places:
                words[word] = address + offset
            results.append(result)
        arena = table.enter() if sized.shares else None
        failed = self._execute(table)
        del arena
        # Its text is the table's, which another call may take.
        error = self._error(table, failed, arguments) if failed >= 0 else None
        sized.free.append(table)
        if error is not None:
            raise error
        sized.calls += 1
        if sized.calls == _MANY and self._fuse is None:
            fused.build_later(sized.programs.values(), sized.swap)
        return results

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
        """Parameters and buffers have moved, or the table is new."""
        checked, dense = known == self._dense, True
        addresses = known[: len(self._static)]
        for (k, i), address in zip(self._static, addresses, strict=True):
            tensor = arguments[i]
            if not checked and (not tensor.is_contiguous() or tensor.is_neg()):
                contiguous = plain(tensor.detach())
                table.copies[k] = contiguous
                address, dense = contiguous.data_ptr(), False
            for word, offset in table.inputs.get(k, ()):
                table.words[word] = address + offset
        if table.sized.plan.packs:
            self._packs.bind(table, arguments)
        # A copy is made anew for each call: who knows what has been written to.
        table.known = known if dense else []
        if dense:
            self._dense = known

    def _error(self, table: Table, row: int, arguments: list[Any]) -> Exception:
        step = table.sized.plan.steps[row]
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
        if self._data_sources:
            symbols = [*symbols, *(results[k].shape[dim] for k, dim in self._data_sources)]
        if self._rebuilds is not None:
            results = [
                result if rebuild is None else rebuild(result, symbols)
                for result, rebuild in zip(results, self._rebuilds, strict=True)
            ]
        scalars = numbers[self._scalars_from :]
        if self._evaluate_after is not None:
            scalars = self._evaluate_after(*symbols)
            check(scalars, self._signature.checks)
        for tensor, contiguous in pending:
            tensor.copy_(contiguous)
        for index, k in self._signature.copy_back:
            arguments[index].copy_(results[k])
        if self._only_values:
            arguments.clear()
            return results
        outputs = returned(self._outputs, results, arguments, scalars, self._argument_views)
        arguments.clear()
        return outputs


def _run(table: Table) -> int:
    return table.run()


@fork_safety.in_child
def _in_child() -> None:
    """OpenMP's threads are not in a forked child, and what waits for them waits for ever: eager
    operators do as well. Threads that the child starts get a team of their own."""
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
