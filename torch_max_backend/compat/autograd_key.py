"""A key for AOTAutograd's cache without inductor's half.

torch's key also covers what decides inductor's code: its configuration, the device's properties, a
digest of all of torch's sources. Collecting that imports most of inductor, about a second of a warm
start, and none of it decides what this backend makes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails
from torch.fx import GraphModule

MARK = "torch_max_backend:"


@cache
def install() -> None:
    """Let keys whose tag names this backend leave inductor's half out; all others stay as they are.

    Does nothing where this version of torch computes its keys in another way.
    """
    name = "_init_fx_graph_hash_details"
    original = getattr(AOTAutogradCacheDetails, name, None)
    if original is None:
        return

    def details(self: Any, gm: Any, example_inputs: Any, fx_config: Any) -> None:
        if MARK not in torch.compiler.config.cache_key_tag:
            original(self, gm, example_inputs, fx_config)
        else:
            _own_details(self, gm, example_inputs, fx_config)

    setattr(AOTAutogradCacheDetails, name, details)
    _without_triton()


def _without_triton() -> None:
    """For a graph without Triton kernels, torch (2.15) imports what generates code around
    them before it looks at the list of their sources, which is empty."""
    name, kernels_of = "get_triton_source_codes_from_gm", "_iter_triton_kernels_from_node"
    original = getattr(AOTAutogradCacheDetails, name, None)
    if original is None or not hasattr(AOTAutogradCacheDetails, kernels_of):
        return

    def sources(self: Any, gm: Any) -> list[str]:
        graphs = (m.graph for m in gm.modules() if isinstance(m, GraphModule))
        nodes = (node for graph in graphs for node in graph.nodes)
        if any(True for node in nodes for _ in getattr(self, kernels_of)(node)):
            return original(self, gm)
        return []

    setattr(AOTAutogradCacheDetails, name, sources)


def _own_details(self: Any, gm: Any, example_inputs: Any, fx_config: Any) -> None:
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
    from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache

    try:
        FxGraphCache._check_can_cache(gm, example_inputs, fx_config)
    except BypassFxGraphCache as e:
        raise BypassAOTAutogradCache(str(e)) from e
    if not all(isinstance(v, (torch.Tensor, torch.SymInt, int)) for v in example_inputs):
        raise BypassAOTAutogradCache("arguments that are neither tensors nor integers")
    self.gm = gm
    self.example_inputs = list(example_inputs)
    # Versions, machine, options and lowerings are in the tag.
    self.cache_key_tag = torch.compiler.config.cache_key_tag
    self.default_dtype = torch.get_default_dtype()
    self.deterministic_algorithms_settings = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )
