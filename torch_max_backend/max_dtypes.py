"""torch dtypes and MAX dtypes."""

from __future__ import annotations

import torch
from max.dtype import DType

from torch_max_backend.errors import UnsupportedDtypeError

TORCH_TO_MAX: dict[torch.dtype, DType] = {
    torch.bool: DType.bool,
    torch.uint8: DType.uint8,
    torch.uint16: DType.uint16,
    torch.uint32: DType.uint32,
    torch.uint64: DType.uint64,
    torch.int8: DType.int8,
    torch.int16: DType.int16,
    torch.int32: DType.int32,
    torch.int64: DType.int64,
    torch.float16: DType.float16,
    torch.bfloat16: DType.bfloat16,
    torch.float32: DType.float32,
    torch.float64: DType.float64,
}
MAX_TO_TORCH: dict[DType, torch.dtype] = {m: t for t, m in TORCH_TO_MAX.items()}

SIXTEEN_BIT_FLOATS = frozenset({DType.float16, DType.bfloat16})


def max_dtype(dtype: torch.dtype) -> DType:
    """The MAX dtype of a torch dtype.

    Raises:
        UnsupportedDtypeError: MAX has no such dtype (complex, quantized, float8, ...).
    """
    try:
        return TORCH_TO_MAX[dtype]
    except KeyError:
        raise UnsupportedDtypeError(
            f"MAX has no counterpart of {dtype}.",
            "Cast to a supported dtype before the compiled region: "
            + ", ".join(str(t).removeprefix("torch.") for t in TORCH_TO_MAX)
            + ".",
        ) from None


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype of a MAX dtype that came from torch."""
    return MAX_TO_TORCH[dtype]


def is_float(dtype: DType) -> bool:
    """Whether a MAX dtype is a floating-point one."""
    return dtype.is_float()


def is_integer(dtype: DType) -> bool:
    """Whether a MAX dtype is an integer one (bool is not)."""
    return not dtype.is_float() and dtype != DType.bool
