"""Packed weights while graphs run: made at the first call, again when a weight has been written to,
shared by all graphs, and gone with the weight.

torch counts what is written to a tensor (its version), but for what is written through ``.data``
or made for inference only.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Sequence

import torch

from torch_max_backend.engines.steps.planner.plan import Pack, Plan
from torch_max_backend.engines.steps.table import Table
from torch_max_backend.engines.steps.tables import Tables, kernels_of
from torch_max_backend.errors import ExecutionError
from torch_max_backend.runtime.tensors import plain

_lock = threading.RLock()


class _Copy:
    """A weight as a kernel reads it.

    Attributes:
        source: The weight.
        state: Where that lay, and its version, when it was packed.
        tensor: The copy.
    """

    def __init__(self, key: _Key, source: torch.Tensor) -> None:
        this = weakref.ref(self)

        def end(_: object) -> None:
            if copy := this():
                copy._end(key)

        self.source = weakref.ref(source, end)
        self.state = (0, -1)
        self.tensor = torch.empty(0, device="cpu")
        # Whose tables have addresses in it.
        self._users: weakref.WeakSet[Packs] = weakref.WeakSet()
        # Nothing else is put where the weight lies as long as that tells whether it has moved.
        self._held: torch.Tensor | None = None

    def address(self, user: Packs) -> int:
        """Where the copy lies, for who is told when it is gone."""
        self._users.add(user)
        return self.tensor.data_ptr()

    def fill(self, tables: Tables, source: torch.Tensor, state: tuple[int, int]) -> None:
        """Pack the weight as it is now.

        Raises:
            ExecutionError: The kernel failed.
        """
        sized = tables.of(())
        if self.state[1] < 0:
            ((shape, _, dtype),) = sized.outputs
            self.tensor = torch.empty(shape, dtype=dtype, device="cpu")
        dense = source.detach()
        if not dense.is_contiguous() or dense.is_neg():
            dense = plain(dense)
        table = Table(sized)
        for places, tensor in ((table.inputs[0], dense), (table.outputs[0], self.tensor)):
            for word, offset in places:
                table.words[word] = tensor.data_ptr() + offset
        if table.run() >= 0:
            raise ExecutionError(f"A weight could not be packed: {table.error()}")
        self._held, self.state = source.detach(), state

    def _end(self, key: _Key) -> None:
        """The weight is gone, and another one may come to lie there."""
        for user in [*self._users]:
            user.forget(key)
        self._held = None
        _copies.pop(key, None)


# By the weight's identity and what is made of it.
_Key = tuple[int, str]
_copies: weakref.WeakValueDictionary[_Key, _Copy] = weakref.WeakValueDictionary()


class Packs:
    """The packed weights of a plan and of those that follow it.

    Args:
        plan: The plan.
        static: Of the inputs whose memory rarely changes the number and the argument's position.

    Attributes:
        positions: The arguments that are packed.
    """

    def __init__(self, plan: Plan, static: Collection[tuple[int, int]]) -> None:
        position = dict(static)
        packs = [pack for stage in plan.stages for pack in stage.packs]
        self.positions = sorted({position[pack.source] for pack in packs})
        self._position = {pack.source: position[pack.source] for pack in packs}
        # Equal layers have equal ones.
        plans = {pack.text: pack.plan for pack in packs}
        found = kernels_of(plan) if packs else {}
        self._tables = {text: Tables(made, found) for text, made in plans.items()}
        # The copies of all weights that were given so far and are still there.
        self._held: dict[_Key, _Copy] = {}
        self._bound: weakref.WeakSet[Table] = weakref.WeakSet()

    def bind(self, table: Table, arguments: Sequence[torch.Tensor]) -> None:
        """Write the addresses of packed weights to a table."""
        packs = table.sized.plan.packs
        with _lock:
            starts = [self._start(pack, arguments) for pack in packs]
            self._bound.add(table)
        for word, number, offset in table.sized.addresses.packed:
            table.words[word] = starts[number] + offset

    def _start(self, pack: Pack, arguments: Sequence[torch.Tensor]) -> int:
        """Where a packed weight lies."""
        source = arguments[self._position[pack.source]]
        key = (id(source), pack.text)
        found = _copies.get(key)
        if found is None or found.source() is not source:
            found = _copies[key] = _Copy(key, source)
        self._held[key] = found
        state = (source.data_ptr(), version_of(source))
        if found.state != state:
            found.fill(self._tables[pack.text], source, state)
        return found.address(self)

    def all_read(
        self, positions: Sequence[int], arguments: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """What is read at each call in the place of some arguments: those that are not packed, and
        packed ones."""
        plain = [arguments[i] for i in positions if i not in self.positions]
        return plain + [copy.tensor for copy in [*self._held.values()]]

    def forget(self, key: _Key) -> None:
        """A weight is gone: have all tables bound anew."""
        self._held.pop(key, None)
        for table in [*self._bound]:
            table.known = []


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; 0 where torch does not count."""
    return 0 if tensor.is_inference() else tensor._version


__all__ = ["Packs", "version_of"]
