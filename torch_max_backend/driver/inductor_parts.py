"""``fallback="inductor"``: torch's own compiler takes what MAX does not."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

from torch_max_backend.compat.dynamo import TorchDynamoException
from torch_max_backend.log import get_logger

log = get_logger("fallback")


class Compiled(nn.Module):
    """A graph that inductor compiles when it is first called; eager PyTorch runs it if that fails.

    Args:
        module: The graph.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._failed = False
        self._serve: Any = torch.compile(module.forward, backend="inductor")

    def forward(self, *arguments: Any) -> Any:
        try:
            return self._serve(*arguments)
        except TorchDynamoException as e:
            if self._failed:
                raise
            self._failed = True
            log.warning("Runs in eager PyTorch: inductor failed too: %s", e)
            self._serve = self._module.forward
            return self._serve(*arguments)


def between_parts(whole: GraphModule) -> GraphModule:
    """A graph of parts (``split.Split.whole``) in which inductor runs what is between them."""
    from torch_max_backend.graph.split import is_work

    stage: dict[Node, int] = {}
    busy: set[int] = set()
    last, after_part = 0, False
    for node in whole.graph.nodes:
        if node.op not in ("call_function", "call_module"):
            continue
        part = node.op == "call_module"
        if part or after_part:
            last += 1
        after_part = part
        stage[node] = last
        if not part and is_work(node):
            busy.add(last)
    if not busy:
        return whole
    made = split_module(whole, whole, stage.__getitem__, keep_original_order=True)
    for k in busy:
        setattr(made, f"submod_{k}", Compiled(getattr(made, f"submod_{k}")))
    return made
