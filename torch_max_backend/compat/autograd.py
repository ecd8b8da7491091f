"""AOTAutograd, which splits a graph into forward and backward: its entry, settings and cache."""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config
    from torch._functorch._aot_autograd.autograd_cache import FXGraphCacheMiss
    from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler
    from torch._inductor.output_code import OutputCode

__all__ = [
    "FXGraphCacheMiss",
    "OutputCode",
    "SerializableAOTDispatchCompiler",
    "aot_autograd",
    "config",
]
