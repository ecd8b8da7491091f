"""Resizing of images."""

import torch

from tests.conformance.entry import Entry

_FLOATS = (torch.float32, torch.float64, torch.bfloat16)
_IMAGES = (*_FLOATS, torch.uint8)

ENTRIES = [
    Entry("nn.functional.interpolate.nearest", dtypes=_IMAGES),
    Entry("nn.functional.interpolate.nearest-exact", dtypes=_IMAGES),
    Entry("nn.functional.interpolate.linear", dtypes=_FLOATS),
    Entry("nn.functional.interpolate.bilinear", dtypes=_IMAGES),
    Entry("nn.functional.interpolate.bicubic", dtypes=_IMAGES),
    Entry("nn.functional.interpolate.trilinear", dtypes=_FLOATS),
    Entry("nn.functional.interpolate.area", dtypes=_FLOATS),
    Entry("nn.functional.upsample_bilinear", dtypes=_FLOATS),
    Entry("nn.functional.upsample_nearest", dtypes=_FLOATS),
    Entry("_upsample_bilinear2d_aa", dtypes=_IMAGES),
]
