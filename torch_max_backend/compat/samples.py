"""torch's database of operators with sample arguments, of its own tests."""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch.testing._internal.common_methods_invocations import op_db

__all__ = ["op_db"]
