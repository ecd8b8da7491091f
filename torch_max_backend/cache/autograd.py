"""Our compiled graphs in AOTAutograd's cache, so that a warm start traces nothing.

torch keeps what AOTAutograd found out about a Dynamo graph; the entry names our artifact by its
key and holds no weights. The artifact itself stays in our own store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import FXGraphCacheMiss
from torch._inductor.output_code import OutputCode

from torch_max_backend.cache import autograd_key
from torch_max_backend.cache.key import (
    environment_components,
    function_digest,
    runtime_digest,
)
from torch_max_backend.convert.registry import registry
from torch_max_backend.options import Options
from torch_max_backend.pipeline import CompiledGraph, load_graph


@dataclass
class MaxOutputCode(OutputCode):
    """A compiled graph in the form that AOTAutograd's cache keeps.

    Attributes:
        compiled: Everything but the loaded model once serialized.
    """

    compiled: CompiledGraph

    def __post_init__(self) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True

    def __call__(self, inputs: list[Any]) -> list[Any]:
        return self.compiled.function(inputs)

    def prepare_for_serialization(self) -> None:
        kept = self.compiled
        self.compiled = CompiledGraph(
            _not_loaded, kept.key, kept.signature, dict(kept.constants), tuple(kept.static)
        )

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Load the artifact after a hit.

        Raises:
            FXGraphCacheMiss: Our store no longer has it; AOTAutograd then traces again.
        """
        kept = self.compiled
        function = load_graph(kept.key, kept.signature, kept.constants, kept.static)
        if function is None:
            raise FXGraphCacheMiss(f"artifact {kept.key} is gone")
        self.compiled = replace(kept, function=function)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing to do: no graph of ours holds Triton kernels."""


def _not_loaded(arguments: list[Any]) -> list[Any]:
    raise RuntimeError("a cached graph was called before it was loaded")


def tag(options: Options) -> str:
    """What AOTAutograd's key must know of us: versions, our sources, the user's lowerings and
    options."""
    parts = [f"{k}={v}" for k, v in sorted(environment_components().items())]
    parts.append(f"options={options}")
    parts.append(f"runtime={runtime_digest()}")
    for op in sorted(registry, key=str):
        function: Callable[..., Any] = registry[op].function
        if not (function.__module__ or "").startswith("torch_max_backend."):
            parts.append(f"{op}={function_digest(function)}")
    return autograd_key.MARK + hashlib.sha256("\n".join(parts).encode()).hexdigest()


@contextmanager
def autograd_cache(enabled: bool, options: Options) -> Iterator[None]:
    """In the body, AOTAutograd caches what is compiled under keys of our own, or nothing."""
    autograd_key.install()
    config = torch._functorch.config
    wanted = enabled and config.enable_autograd_cache
    tagged = torch.compiler.config.cache_key_tag + tag(options) if wanted else ""
    with ExitStack() as stack:
        stack.enter_context(
            config.patch(bundled_autograd_cache=wanted, enable_autograd_cache=wanted)
        )
        stack.enter_context(torch.compiler.config.patch(cache_key_tag=tagged))
        yield


def leave_out() -> None:
    """Called in the body of ``autograd_cache`` for a graph with a backward: its entry would have
    to hold the backward, which is compiled only when it is first needed."""
    torch._functorch.config.bundled_autograd_cache = False
