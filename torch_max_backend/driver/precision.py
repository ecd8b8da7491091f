"""How precise products of float32 are to be, by torch's settings."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from torch_max_backend.engines.steps.instructions import product_precision
from torch_max_backend.engines.steps.planned import on_cpu


def precision_of(module: GraphModule) -> str:
    """Of the products of a graph, in torch's words: "ieee", or what they may be rounded to, "bf16"
    on CPU and "tf32" on GPUs. ``torch.set_float32_matmul_precision`` decides."""
    return product_precision() if on_cpu(module) else _on_gpu()


def precisions() -> str:
    """The same of all devices, for keys."""
    return f"{product_precision()} {_on_gpu()}"


def _on_gpu() -> str:
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
