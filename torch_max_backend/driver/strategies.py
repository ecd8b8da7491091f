"""Which strategy makes a graph ready: one engine for all of it, candidates that are timed, or parts
with eager PyTorch between them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule

from torch_max_backend.driver.torch_runs import falls_back
from torch_max_backend.driver.unit import CompiledGraph
from torch_max_backend.options import Options

if TYPE_CHECKING:
    from torch_max_backend.driver.unit import Unit


def start(
    module: GraphModule, static: Collection[int], options: Options, exact: int | None = None
) -> Unit:
    """Analyse a functional ATen graph; nothing is compiled yet.

    Args:
        module: The graph, as AOTAutograd traced it.
        static: Positions of arguments whose memory rarely changes.
        options: The user's options.
        exact: How many results, the first ones, need the very strides that torch promised; the
            others are for a backward graph. All if ``None``.

    Raises:
        UnsupportedError: With ``fallback="error"``: something in the graph has no MAX counterpart.
        OptionError: An option is unavailable here.
    """
    # What a warm start does not need, since AOTAutograd's cache answers.
    from torch_max_backend.driver.autotuned import job_or_candidates
    from torch_max_backend.driver.partitioned import Partitioned

    make: Any = Partitioned if falls_back(options) else job_or_candidates
    unit: Unit = make(module, static, options, exact)
    return unit


def compile_graph(module: GraphModule, static: Collection[int], options: Options) -> CompiledGraph:
    """Compile a functional ATen graph, or fetch its artifact from the store.

    The arguments are those of ``start``.

    Raises:
        UnsupportedError: With ``fallback="error"``: something in the graph has no MAX counterpart.
        ConversionError: With ``fallback="error"``: a lowering failed.
        CompilationError: With ``fallback="error"``: MAX could not compile the graph.
    """
    from torch_max_backend.driver.passes import own_modes

    with own_modes():
        unit = start(module, static, options)
        function = unit.in_background() if options.background else unit.functions()[0]
        return unit.graph(function)
