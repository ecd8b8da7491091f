"""Images read at positions of a grid."""

import torch

from tests.conformance.entry import Entry

_FLOATS = (torch.float32, torch.float64)

ENTRIES = [
    Entry("nn.functional.grid_sample", dtypes=_FLOATS, samples=6),
    Entry("grid_sampler_2d", dtypes=_FLOATS),
    Entry("grid_sampler_3d", dtypes=_FLOATS),
]
