"""Convolutions."""

import torch

from tests.conformance.entry import Entry

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)

_KERNEL = "a transposed convolution needs a static kernel size"
_PADDING = "symbolic padding"


def _transposed(name: str, samples: int = 3) -> Entry:
    kinds = [str(d).removeprefix("torch.") for d in _DTYPES]
    refused = {f"{name}-{kind}-dynamic": _KERNEL for kind in kinds}
    return Entry(name, dtypes=_DTYPES, samples=samples, refused=refused)


ENTRIES = [
    Entry(
        "nn.functional.conv1d",
        dtypes=_DTYPES,
        refused={"nn.functional.conv1d-float32-dynamic-6": _PADDING},
    ),
    Entry("nn.functional.conv2d", dtypes=_DTYPES),
    Entry("nn.functional.conv3d", dtypes=_DTYPES, samples=2),
    _transposed("nn.functional.conv_transpose1d"),
    _transposed("nn.functional.conv_transpose2d"),
    _transposed("nn.functional.conv_transpose3d", samples=2),
]
