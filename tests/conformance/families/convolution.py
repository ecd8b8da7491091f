"""Convolutions."""

import torch

from tests.conformance.entry import Entry

_FLOATS = (torch.float32, torch.float64, torch.bfloat16)

_KERNEL = "a transposed convolution needs a static kernel size"
_PADDING = "symbolic padding"


def _transposed(name: str, samples: int = 3) -> Entry:
    kinds = [str(d).removeprefix("torch.") for d in _FLOATS]
    refused = {f"{name}-{kind}-dynamic": _KERNEL for kind in kinds}
    return Entry(name, dtypes=_FLOATS, samples=samples, refused=refused)


ENTRIES = [
    Entry(
        "nn.functional.conv1d",
        dtypes=_FLOATS,
        refused={"nn.functional.conv1d-float32-dynamic-6": _PADDING},
    ),
    Entry("nn.functional.conv2d", dtypes=_FLOATS),
    Entry("nn.functional.conv3d", dtypes=_FLOATS, samples=2),
    _transposed("nn.functional.conv_transpose1d"),
    _transposed("nn.functional.conv_transpose2d"),
    _transposed("nn.functional.conv_transpose3d", samples=2),
]
