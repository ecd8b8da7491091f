"""Unpooling, fractional pooling and gradients of pooling."""

import torch

from tests.conformance.entry import Entry

_FLOATS = (torch.float32, torch.float64, torch.bfloat16)

ENTRIES = [
    Entry("max_pool2d_with_indices_backward", dtypes=_FLOATS),
    Entry("nn.functional.max_unpool1d", dtypes=_FLOATS),
    Entry("nn.functional.max_unpool2d", dtypes=_FLOATS),
    Entry("nn.functional.max_unpool3d", dtypes=_FLOATS),
]
