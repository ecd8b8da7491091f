"""AOTAutograd, which splits a graph into forward and backward: its entry, settings and cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._dynamo import disable
    from torch._dynamo.backends import common
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._dynamo.utils import counters
    from torch._functorch import config
    from torch._functorch._aot_autograd.autograd_cache import FXGraphCacheMiss
    from torch._functorch.aot_autograd import (
        SerializableAOTDispatchCompiler,
        aot_module_simplified,
    )
    from torch._inductor.output_code import OutputCode


def aot_autograd(
    *, bw_compiler: SerializableAOTDispatchCompiler, **settings: Any
) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
    """torch's function of this name, without what that imports of inductor's code generators to
    write files where ``TORCH_COMPILE_DEBUG=1`` asks for them: a tenth of a second.

    Args:
        bw_compiler: What is given the backward graph.
        settings: The other arguments of ``aot_module_simplified``.
    """
    theirs = common.aot_autograd(bw_compiler=bw_compiler, **settings)
    backward = SerializableAOTDispatchCompiler(
        bw_compiler.output_code_ty, _untraced(bw_compiler.compiler_fn)
    )

    def compiled(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        nested = any(isinstance(x, (list, tuple, dict)) for x in example_inputs)
        if nested or os.environ.get("TORCH_COMPILE_DEBUG") == "1":
            return theirs(module, example_inputs)
        of_aot = counters["aot_autograd"]
        of_aot["total"] += 1
        try:
            function = aot_module_simplified(
                module, example_inputs, bw_compiler=backward, **settings
            )
        except TensorifyScalarRestartAnalysis:
            raise
        except Exception:
            of_aot["not_ok"] += 1
            raise
        of_aot["ok"] += 1
        return disable(function, reason="AOTAutograd has traced it")

    return compiled


def _untraced(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler that Dynamo traces no more than what it makes: a backward graph may be compiled
    while another is traced."""

    def untraced(*arguments: Any) -> Any:
        made = disable(compiler, reason="it compiles a backward graph")(*arguments)
        return disable(made, reason="AOTAutograd has traced it")

    return untraced


__all__ = [
    "FXGraphCacheMiss",
    "OutputCode",
    "SerializableAOTDispatchCompiler",
    "aot_autograd",
    "config",
]
