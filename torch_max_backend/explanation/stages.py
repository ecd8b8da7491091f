"""What a model becomes on the way, stage by stage, as text that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torch.fx import GraphModule

from torch_max_backend.explanation.report import engine_of

if TYPE_CHECKING:
    from torch_max_backend.driver.job import Job
    from torch_max_backend.driver.partitioned import Partitioned


@dataclass(frozen=True)
class Stage:
    """A graph at one stage.

    Attributes:
        graph: The number of the ATen graph that it is of, as in the explanation; of Dynamo's
            graphs, the number of the first ATen graph that was made of it.
        name: "dynamo", "aten", "parts" (the calls of parts and torch's operators between them),
            "part 0" (the graph of a part after the passes), "part 0, steps" or "part 0, MAX" (what
            runs).
        write: Writes the text.
    """

    graph: int
    name: str
    write: Callable[[], str]

    @cached_property
    def text(self) -> str:
        """Python code of an FX graph, the lines of a table of steps, or a module of MAX."""
        return self.write().strip()

    def __str__(self) -> str:
        return f"# Graph {self.graph}, {self.name}\n{self.text}\n"


def readable(module: GraphModule) -> str:
    """The code of an FX graph with the dtypes and shapes of its values."""
    text: str = module.print_readable(print_output=False)
    return text


def stages_of(graph: int, plan: Partitioned) -> Iterator[Stage]:
    """The stages of an ATen graph from its cut on.

    Args:
        graph: Its number.
        plan: How it was cut.
    """
    whole = plan.whole
    if whole is not None:
        yield Stage(graph, "parts", lambda: readable(whole))
    for k, piece in enumerate(plan.pieces):
        assert piece.job is not None
        job = piece.job.chosen
        yield Stage(graph, f"part {k}", lambda job=job: readable(job.trace.module))  # type: ignore[misc]
        engine = "steps" if engine_of(job)[0] == "steps" else "MAX"
        yield Stage(graph, f"part {k}, {engine}", lambda job=job: _runs(job))  # type: ignore[misc]


def _runs(job: Job) -> str:
    from torch_max_backend.driver.passes import own_modes

    with own_modes():
        if engine_of(job)[0] == "steps":
            from torch_max_backend.engines.steps.plan_text import text_of

            return text_of(job.plan())
        from torch_max_backend.engines.max.module import build_module

        return str(build_module([job.trace])[0].mlir_module)
