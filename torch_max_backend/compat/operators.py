"""Operators of torch as objects: their types, their names, who has a kernel for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._C import Argument, DispatchKey
    from torch._higher_order_ops.auto_functionalize import (
        get_mutable_args,
        read_view_information_from_args,
    )
    from torch._library.custom_ops import CustomOpDef
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

    _names = torch._C._dispatch_get_all_op_names
    _has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

    # Reads a schema, as text, into its arguments and results.
    parse_schema = torch._C.parse_schema

    # The type in schemas of what is data: tensors, and numbers that take their place.
    TENSOR = torch.ops.aten.neg.default._schema.arguments[0].real_type


def operator_names() -> list[str]:
    """The names of all operators that are registered, as ``aten::add.Tensor``."""
    return _names()


def has_kernel(op: OpOverload, key: str | DispatchKey) -> bool:
    """Whether an operator has a kernel of its own for a dispatch key."""
    return _has_kernel(op.name(), key)


def composite_kernel(op: OpOverload) -> Callable[..., Any]:
    """torch's formula of an operator that consists of others, whatever takes its place."""
    return lambda *arguments: op._op_dk(DispatchKey.CompositeImplicitAutograd, *arguments)


__all__ = [
    "TENSOR",
    "Argument",
    "CustomOpDef",
    "DispatchKey",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "composite_kernel",
    "get_mutable_args",
    "has_kernel",
    "operator_names",
    "parse_schema",
    "read_view_information_from_args",
]
