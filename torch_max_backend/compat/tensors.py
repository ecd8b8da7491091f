"""What torch gives only to code that its compilers write (2.11 to 2.15): tensors in a third of the
time of ``torch.empty`` and ``as_strided``, who holds memory, and switches without their guards."""

from __future__ import annotations

import torch

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    # A new CPU tensor: sizes, strides, dtype. Never one that is for inference only.
    empty_strided = torch._C._dynamo.guards._empty_strided_cpu

    # A tensor in the memory of another, with its dtype: the tensor, sizes, strides, and how many
    # elements after its start. Not a view to autograd, and with a version counter of its own.
    tensor_in = torch._C._dynamo.guards._reinterpret_tensor

    # How many in C++ hold a storage, which is named by its `_cdata`.
    storage_uses = torch._C._storage_Use_Count

    # Whether a profiler of torch is on.
    profiling = torch._C._autograd._profiler_enabled

    # Whether operators record what gradients need.
    set_grad_enabled = torch._C._set_grad_enabled

    # Whether a tensor is one that `torch.func` has wrapped, also after its transform has ended.
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

    # A tensor as a capsule of DLPack.
    to_dlpack = torch._C._to_dlpack

    # The tensor of such a capsule.
    from_dlpack = torch._C._from_dlpack

__all__ = [
    "empty_strided",
    "from_dlpack",
    "is_wrapped",
    "profiling",
    "set_grad_enabled",
    "storage_uses",
    "tensor_in",
    "to_dlpack",
]
