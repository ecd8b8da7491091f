"""Loops as operators, which torch still calls prototypes."""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

__all__ = ["scan", "while_loop"]
