"""Seeds of a graph's random numbers: one input of the model for each device that draws."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torch_max_backend.graph.signature_schema import ModelInput
from torch_max_backend.graph.trace import Trace
from torch_max_backend.registry.lowerings import registry


def use_seeds(trace: Trace) -> None:
    """Have the runtime draw a seed at each call, if the graph has random nodes."""
    devices = {drawing_device(n) for n in trace.module.graph.nodes if is_random(n)}
    trace.signature.inputs += [ModelInput("seed", source=d) for d in sorted(devices)]


def is_random(node: Node) -> bool:
    """Whether the lowering of a node draws random numbers."""
    return node.target in registry and registry[node.target].random


def drawing_device(node: Node) -> str:
    """The device whose generator a random node draws from: "cpu", "cuda:0", ..."""
    value: Any = node.meta["val"]
    first: torch.Tensor = value[0] if isinstance(value, (list, tuple)) else value
    device = first.device
    return device.type if device.type == "cpu" else f"{device.type}:{device.index or 0}"
