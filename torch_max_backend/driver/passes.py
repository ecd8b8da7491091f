"""The passes that a functional ATen graph goes through before it is converted, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from torch_max_backend.compat.tracing import disable_current_modes
from torch_max_backend.driver.precision import precision_of
from torch_max_backend.engines.steps.instructions import bfloat16_unit
from torch_max_backend.errors import OptionError
from torch_max_backend.gemm_providers.choice import provider
from torch_max_backend.graph.capability import check_supported
from torch_max_backend.graph.gemm_routines import use_bank
from torch_max_backend.graph.passes.complex_pairs import real_pairs
from torch_max_backend.graph.passes.constant_folding import fold_constants
from torch_max_backend.graph.passes.effect_tokens import inline_effects
from torch_max_backend.graph.passes.epilogue_fusion import fuse_epilogues
from torch_max_backend.graph.passes.float8 import bytes_for_float8
from torch_max_backend.graph.passes.inline_higher_order import inlined
from torch_max_backend.graph.passes.narrow_weights import take_narrow_weights
from torch_max_backend.graph.passes.strided_copies import gather_copies
from torch_max_backend.graph.random_seeds import use_seeds
from torch_max_backend.graph.signature import analyse
from torch_max_backend.graph.trace import Trace
from torch_max_backend.options import OPTIONAL_PASSES, Options


@dataclass(frozen=True)
class Pass:
    """A change to a graph that leaves what it computes as it is.

    Attributes:
        name: As option ``skip_passes`` and ``explain`` call it.
        run: Changes a graph in place, or returns another.
        whole: Whether it sees a graph before that is cut into parts.
        own_gemm: Whether it makes calls that only this package's kernels take.
    """

    name: str
    run: Callable[[GraphModule], GraphModule | None]
    whole: bool = False
    own_gemm: bool = False

    @property
    def optional(self) -> bool:
        """Whether a graph can be converted without it."""
        return self.name in OPTIONAL_PASSES


def _fuse_epilogues(module: GraphModule) -> None:
    fuse_epilogues(module, bfloat16=bfloat16_unit() != "")


PASSES = (
    Pass("inline_higher_order", inlined, whole=True),
    Pass("effect_tokens", inline_effects, whole=True),
    Pass("constant_folding", fold_constants, whole=True),
    Pass("complex_pairs", real_pairs),
    Pass("float8_bytes", bytes_for_float8),
    Pass("strided_copies", gather_copies),
    Pass("narrow_weights", take_narrow_weights, own_gemm=True),
    Pass("epilogue_fusion", _fuse_epilogues, own_gemm=True),
)


def run_passes(
    module: GraphModule, passes: Collection[Pass] = PASSES, skipped: Collection[str] = ()
) -> GraphModule:
    """Apply passes to a graph, each once: those that it went through before are left out.

    Args:
        module: The graph, which may be changed.
        passes: Which, in order.
        skipped: Names of optional ones that are left out.
    """
    done = module.meta.get("passes", ())
    for each in passes:
        if each.name not in done and each.name not in skipped:
            module = each.run(module) or module
            done = (*done, each.name)
            module.meta["passes"] = done
    return module


@contextmanager
def own_modes() -> Iterator[None]:
    """AOTAutograd compiles under its fake tensor mode; the graph's constants are real, and on CPU
    whatever the default device is. MLIR's context belongs to a thread, and torch.compile runs in
    any."""
    from torch_max_backend.compat.max_graphs import ensure_default_mlir_context

    with ExitStack() as stack:
        stack.enter_context(disable_current_modes())
        if torch.get_default_device().type != "cpu":  # a mode that each call of torch goes through
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(ensure_default_mlir_context())
        yield


def prepare(module: GraphModule, options: Options | None = None, exact: int | None = None) -> Trace:
    """Apply the passes, check the graph and find out how its model will be called.

    Args:
        module: The graph, which is changed.
        options: The user's options.
        exact: How many results, the first ones, need the very strides that torch promised; the
            others are for a backward graph. All if ``None``.

    Raises:
        UnsupportedError: Something in the graph has no MAX counterpart.
        OptionError: The bank that was asked for is not available here.
    """
    options = options or Options()
    found = None
    if options.bank is not False:
        found = provider(options.bank if isinstance(options.bank, str) else None)
        if found is None:
            raise OptionError(f"Option 'bank': this machine has no {options.bank!r}.")
    passes = [p for p in PASSES if found is not None or not p.own_gemm]
    module = run_passes(module, passes, options.skip_passes)
    check_supported(module)
    trace = analyse(module, exact)
    use_seeds(trace)
    if found is not None:
        use_bank(trace, found)
    trace.signature.precision = precision_of(trace.module)
    trace.signature.bfloat16 = bfloat16_unit()
    return trace
