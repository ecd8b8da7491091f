"""What is the same for all sizes of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch_max_backend.engines.steps import row_pairs
from torch_max_backend.engines.steps.kernel_rows import KernelRow
from torch_max_backend.engines.steps.layout import Layout
from torch_max_backend.engines.steps.planner.instances import instance_of
from torch_max_backend.engines.steps.planner.plan import KernelStep, Plan, ProgramStep, itemsize
from torch_max_backend.engines.steps.rows_by_size import RowsBySize, SizedRow
from torch_max_backend.engines.steps.shells import Instance


class Shared:
    """What the tables of a plan have in common, whatever the sizes.

    Args:
        plan: The plan.
        addresses: Those of its kernels.
        constants: Those of its constants.

    Attributes:
        plan: The plan.
        constants: The addresses of its constants.
        kernels: The rows of kernels as far as they are the same, by number.
        programs: The rows of programs by sizes, by number.
        pairs: Of steps that may become one function, the first one by the second.
        temporaries: The numbers of temporary memory.
        widths: The bytes of an element of each.
        lives: The first and the last step that use each.
    """

    def __init__(
        self, plan: Plan, addresses: Mapping[Instance, int], constants: Sequence[int]
    ) -> None:
        self.plan = plan
        self.constants = constants
        self.kernels = {
            i: KernelRow.of(step, addresses[instance_of(step, plan.memory)])
            for i, step in enumerate(plan.steps)
            if isinstance(step, KernelStep)
        }
        self.pairs = row_pairs.pairs(plan)
        self.programs: dict[int, RowsBySize] = {}
        for i, step in enumerate(plan.steps):
            if isinstance(step, ProgramStep):
                before = self.programs[self.pairs[i]] if i in self.pairs else None
                self.programs[i] = RowsBySize(step, before)
        self.temporaries = [i for i, m in enumerate(plan.memory) if m.kind == "temporary"]
        self.widths = [itemsize(plan.memory[i].dtype) for i in self.temporaries]
        self.lives = row_pairs.lives([plan.memory[i] for i in self.temporaries], self.pairs)
        self._layout: Layout | None = None

    def layout(self, rows: Mapping[int, SizedRow]) -> Layout:
        """How tables with these rows of programs lie."""
        found = self._layout
        if found is None or found.forms != [row.form for row in rows.values()]:
            found = self._layout = Layout.of(self.plan, self.kernels, rows)
        return found
