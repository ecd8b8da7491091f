"""Resizing of images."""

import torch

from tests.conformance.entry import Entry

_FLOATS = (torch.float32, torch.float64, torch.bfloat16)

ENTRIES = [
    Entry("nn.functional.interpolate.nearest", dtypes=_FLOATS),
    Entry("nn.functional.interpolate.nearest-exact", dtypes=_FLOATS),
    Entry("nn.functional.interpolate.linear", dtypes=_FLOATS),
    Entry("nn.functional.interpolate.bilinear", dtypes=_FLOATS),
    Entry("nn.functional.interpolate.bicubic", dtypes=_FLOATS, samples=2),
    Entry("nn.functional.interpolate.trilinear", dtypes=_FLOATS, samples=2),
    Entry("nn.functional.upsample_bilinear", dtypes=_FLOATS),
    Entry("nn.functional.upsample_nearest", dtypes=_FLOATS),
]
