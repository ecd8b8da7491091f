"""Conditions on data, by the kernel ``tmb_assert`` of ``mojo_kernels/indexing/lookup.mojo``."""

from __future__ import annotations

import numpy as np
import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorValue, ops

from torch_max_backend.ops.common.promotion import to_dtype
from torch_max_backend.ops.common.raising import raise_by
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _raise_unless(flag: TensorValue, message: str) -> None:
    """Let the model raise when it runs unless a tensor's one number is not 0."""
    true = ops.reshape(to_dtype(flag, DType.bool), [1])
    text = np.array([ord(c) for c in message or " "], np.int32)
    raise_by("tmb_assert", true, ops.constant(text, DType.int32, DeviceRef.CPU()))


@map_to(aten._assert_async.default, kernels="base")
def assert_async(self: TensorValue) -> None:
    """_assert_async(Tensor self) -> ()"""
    _raise_unless(self, "Expected Tensor with single nonzero value, but got zero")


@map_to(aten._assert_async.msg, kernels="base")
def assert_async_with_message(self: TensorValue, assert_msg: str) -> None:
    """_assert_async.msg(Tensor self, str assert_msg) -> ()"""
    _raise_unless(self, assert_msg)


@map_to(aten._functional_assert_async.msg, kernels="base")
def functional_assert_async(
    self: TensorValue, assert_msg: str, dep_token: TensorValue
) -> TensorValue:
    """_functional_assert_async.msg(Tensor self, str assert_msg, Tensor dep_token) -> Tensor"""
    _raise_unless(self, assert_msg)
    return dep_token
