"""One row of the conformance tables: an ``op_db`` entry and how it is tested."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

DTYPES = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.float64,
    torch.float16,
    torch.bfloat16,
)


@dataclass(frozen=True)
class Entry:
    """An ``op_db`` entry under test.

    Attributes:
        name: Name of the entry, with the variant behind a dot where it has one
            ("add", "nn.functional.gelu", "div.floor_rounding").
        dtypes: Dtypes to test, those that torch supports among them.
        samples: How many float32 samples, static; about as many are traced dynamically.
        refused: Samples that must raise ``UnsupportedOperatorError``: label prefix to reason, for
            instance ``{"bitwise_and-int64": "MAX has no integer bitwise operators"}``.
    """

    name: str
    dtypes: tuple[torch.dtype, ...] = DTYPES
    samples: int = 3
    refused: dict[str, str] = field(default_factory=dict)
