"""A compiled model as the function that AOTAutograd calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch.profiler import record_function

from torch_max_backend.compat.tensors import profiling
from torch_max_backend.engines.max.buffers import to_tensor
from torch_max_backend.engines.max.device_graphs import DeviceGraphs, replayable
from torch_max_backend.engines.max.streams import Order, orders_of
from torch_max_backend.engines.max.timers import quiet
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.process import fork_safety
from torch_max_backend.runtime.results import (
    Rebuild,
    argument_views,
    check,
    evaluator_or_none,
    execution_error,
    returned,
)

if TYPE_CHECKING:
    from max.driver import Buffer
    from max.engine import Model
from torch_max_backend.engines.max.extents import Extents, extent, memory
from torch_max_backend.engines.max.slots import slots_of

# Symbolic sizes, numbers, copies of arguments that are written to, the model's inputs.
_Bound = tuple[list[Any], Sequence[Any], list[tuple[torch.Tensor, torch.Tensor]], list[Any]]
# Ranges of torch's profiler.
_RANGE = "torch_max_backend"
_numbers = itertools.count(1)


class Executable:
    """Binds torch's arguments to a compiled model, runs it and rebuilds torch's results.

    Called with one list, which it empties (AOTAutograd's boxed convention), so that arguments
    can be freed as soon as torch no longer needs them.

    Args:
        model: The compiled model.
        signature: How the traced graph is called.
        constants: Tensors of the graph that are inputs of the model, by attribute name.
        static: Positions of arguments whose memory rarely changes (parameters and buffers): their
            MAX buffers are kept and checked against pointer, shape and strides on each call.
        replay: Capture and replay kernel launches, on a GPU.
    """

    _boxed_call = True

    def __init__(
        self,
        model: Model,
        signature: Signature,
        constants: Mapping[str, torch.Tensor],
        static: Collection[int] = (),
        replay: bool = False,
    ) -> None:
        self._execute = quiet(model._execute_device_tensors)
        if replay and replayable(signature):
            inputs = enumerate(signature.inputs)
            moving = [k for k, i in inputs if i.kind == "tensor" and i.index not in static]
            self._execute = DeviceGraphs(model, self._execute, moving)
        _executables.add(self)
        self._number = next(_numbers)
        self._signature = signature
        names = list(signature.symbols)
        texts = [i.source for i in signature.inputs if i.kind in ("carrier", "scalar")]
        self._output_scalars_from = len(texts)
        numbers_out = [o.source for o in signature.outputs if o.kind == "scalar"]
        # What depends on data is known only after a run.
        self._data_sources = list(signature.data_symbols.values())
        self._evaluate_after: Callable[..., list[Any]] | None = None
        if self._data_sources or signature.checks:
            conditions = [text for text, _ in signature.checks]
            after = [*names, *signature.data_symbols]
            self._evaluate_after = evaluator_or_none(numbers_out + conditions, after)
        else:
            texts += numbers_out
        self._evaluate = evaluator_or_none(texts, names)
        wanted = bool(texts or self._evaluate_after)
        wanted = wanted or any(o.sizes or o.strides for o in signature.layouts)
        self._symbol_sources = [signature.symbols[n] for n in names] if wanted else []
        names += signature.data_symbols
        self._layouts = [Rebuild.of(layout, names) for layout in signature.layouts]
        self._rebuilds = any(rebuild is not None for rebuild in self._layouts)
        self._slots = slots_of(signature, constants, static)
        # Inputs whose memory stays where it is from call to call, and the others.
        self._lasting = [k for k, slot in enumerate(self._slots) if slot.static]
        self._passing = [
            k
            for k, item in enumerate(signature.inputs)
            if item.kind != "carrier" and not self._slots[k].static
        ]
        self._known: tuple[list[Any], Extents] = ([], Extents([]))
        self._plan = [
            (o.kind, o.index if o.kind in ("value", "input") else -1) for o in signature.outputs
        ]
        self._argument_views = argument_views(signature)
        # MAX folds `x + 0` and merges equal nodes: any output may share memory, until a call whose
        # tensors all have elements shows which ones do.
        self._suspects: Sequence[int] = range(len(signature.layouts))
        self._internal = frozenset(signature.internal)
        self._views = dict(signature.views)
        self._settled = False
        # Of the devices that take part; known after the first call.
        self._orders: tuple[Order, ...] | None = None
        self._only_values = all(
            kind == "value" and index == i for i, (kind, index) in enumerate(self._plan)
        ) and len(self._plan) == len(signature.layouts)

    def refuse(self) -> None:
        """Have each call raise what this process, a forked child, must not do."""
        # Instead of a question at each call.
        self._bind = _not_in_child  # type: ignore[method-assign]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if profiling():
            return self._recorded(arguments)
        bound = self._bind(arguments)
        return self._rebuild(arguments, bound, self._run(arguments, bound))

    def _recorded(self, arguments: list[Any]) -> list[Any]:
        """A call as ranges of torch's profiler."""
        with record_function(f"{_RANGE} graph {self._number}"):
            with record_function(f"{_RANGE} bind"):
                bound = self._bind(arguments)
            with record_function(f"{_RANGE} run"):
                results = self._run(arguments, bound)
            with record_function(f"{_RANGE} rebuild"):
                return self._rebuild(arguments, bound, results)

    def _bind(self, arguments: list[Any]) -> _Bound:
        symbols = [
            arguments[i] if axis < 0 else arguments[i].shape[axis]
            for i, axis in self._symbol_sources
        ]
        numbers = () if self._evaluate is None else self._evaluate(*symbols)
        pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        buffers = [slot.buffer(arguments, numbers, pending) for slot in self._slots]
        return symbols, numbers, pending, buffers

    def _run(self, arguments: list[Any], bound: _Bound) -> list[torch.Tensor]:
        try:
            return [to_tensor(b) for b in self._in_order(bound[3])]
        except Exception as e:
            raise execution_error(e, self._signature, arguments) from e

    def _in_order(self, buffers: list[Buffer]) -> list[Buffer]:
        """Run the model between what torch has enqueued and what it will."""
        known = self._orders
        orders = orders_of(buffers) if known is None else known
        for order in orders:
            order.before()
        results = self._execute(buffers)
        if known is None:
            # Results may be on devices that no argument is on.
            self._orders = orders = orders_of([*buffers, *results])
        for order in orders:
            order.after()
        return results

    def _rebuild(
        self, arguments: list[Any], bound: _Bound, results: list[torch.Tensor]
    ) -> list[Any]:
        symbols, numbers, pending, buffers = bound
        if self._suspects:
            self._separate(results, buffers, arguments)
        symbols += [results[k].shape[dim] for k, dim in self._data_sources]
        if self._rebuilds:
            results = [
                result if rebuild is None else rebuild(result, symbols)
                for result, rebuild in zip(results, self._layouts, strict=True)
            ]
        after = None
        if self._evaluate_after is not None:
            after = self._evaluate_after(*symbols)
            check(after, self._signature.checks)
        for tensor, contiguous in pending:
            tensor.copy_(contiguous)
        for index, k in self._signature.copy_back:
            arguments[index].copy_(results[k])
        if self._only_values:
            arguments.clear()
            return results
        scalars = numbers[self._output_scalars_from :] if after is None else after
        outputs = returned(self._plan, results, arguments, scalars, self._argument_views)
        arguments.clear()
        return outputs

    def _separate(
        self, results: list[torch.Tensor], buffers: list[Buffer], arguments: list[Any]
    ) -> None:
        """Give results that share memory with an input or another result memory of their own.

        Those that only the backward graph takes may share with each other, and be views of
        arguments: a copy costs more than its bytes, for it wakes up torch's threads, which then
        keep the cores from MAX's.
        """
        asked = self._suspects  # another thread may settle them meanwhile
        suspects = set(asked)
        lasting = self._lasting_extents(buffers)
        given = [memory(buffers[k]) for k in self._passing]
        extents = [extent(r) for r in results]
        kept = [e for i, e in enumerate(extents) if i not in suspects or i in self._internal]
        taken = Extents([*given, *kept])
        sharing = []
        for i in asked:
            if i in self._internal:
                continue
            if lasting.overlap(extents[i]) or taken.overlap(extents[i]):
                sharing.append(i)
                results[i] = results[i].clone()
                extents[i] = extent(results[i])
            taken.add(extents[i])
        if self._internal:
            shown = [e for i, e in enumerate(extents) if i not in self._internal]
            public = Extents([*given, *shown])
            for i in asked:
                if i not in self._internal:
                    continue
                if lasting.overlap(extents[i]) or public.overlap(extents[i]):
                    sharing.append(i)
                    view = self._view(i, results[i], arguments)
                    results[i] = results[i].clone() if view is None else view
        if not (self._settled or taken.empty or lasting.empty):
            self._suspects = sorted({*sharing, *self._signature.maybe_aliased})
            self._settled = True
        if not self._suspects:
            # Nobody will ask again, and notice that a parameter has moved.
            self._known = ([], Extents([]))

    def _lasting_extents(self, buffers: list[Buffer]) -> Extents:
        """What the inputs occupy that stay where they are: found out anew where one did not."""
        lasting = [buffers[k] for k in self._lasting]
        known, extents = self._known
        if len(known) != len(lasting) or any(map(is_not, known, lasting)):
            extents = Extents([memory(b) for b in lasting])
            # A copy that was made for this call alone must not live on here.
            if all(self._slots[k].kept is b for k, b in zip(self._lasting, lasting, strict=True)):
                self._known = lasting, extents
        return extents

    def _view(self, k: int, result: torch.Tensor, arguments: list[Any]) -> torch.Tensor | None:
        """A result that is memory of an argument, as a view of it."""
        argument = arguments[self._views[k]] if k in self._views else None
        if argument is None or argument.dtype != result.dtype:
            return None
        start, end = extent(argument)
        first, last = extent(result)
        if first < start or last > end:
            return None
        offset = argument.storage_offset() + (first - start) // argument.element_size()
        return argument.detach().as_strided(result.shape, result.stride(), offset)


def _not_in_child(arguments: list[Any]) -> _Bound:
    fork_safety.check()
    raise AssertionError("executables are inherited in forked children alone")


_executables: WeakSet[Executable] = WeakSet()


@fork_safety.in_child
def _in_child() -> None:
    if fork_safety.inherited():
        for executable in _executables:
            executable.refuse()
