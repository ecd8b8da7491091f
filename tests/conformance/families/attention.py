"""Scaled dot product attention."""

import torch

from tests.conformance.entry import Entry

_FLOATS = (torch.float32, torch.float64, torch.bfloat16)

ENTRIES = [
    Entry("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu", dtypes=_FLOATS, samples=4),
    Entry("nn.functional.scaled_dot_product_attention", dtypes=_FLOATS, samples=4),
]
