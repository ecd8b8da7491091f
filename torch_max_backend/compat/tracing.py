"""What traces with tensors that have no memory, and what is in the way of real ones."""

from __future__ import annotations

import torch

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import TracingContext, detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
    from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes

    # Raises with a message where a condition on sizes is false.
    check = torch._check

    _functorch_stack = torch._C._functorch.peek_interpreter_stack


def in_functorch() -> bool:
    """Whether a transformation of ``torch.func`` runs: it knows no rules of our operators."""
    return _functorch_stack() is not None


__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "FunctionalTensorMode",
    "LazyGraphModule",
    "TracingContext",
    "check",
    "detect_fake_mode",
    "disable_current_modes",
    "dispatch_functionalize",
    "enable_python_dispatcher",
    "in_functorch",
    "pytree",
]
