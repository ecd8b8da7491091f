"""MAX's graphs below its public functions: operations, dialects, the context that holds them.

Imports MAX.
"""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("max"):
    from max._core import Operation
    from max._core.dialects import builtin, kgen, mo, rmo
    from max._mlir_context import default_mlir_context, ensure_default_mlir_context
    from max.graph.type import _ChainType as ChainType

__all__ = [
    "ChainType",
    "Operation",
    "builtin",
    "default_mlir_context",
    "ensure_default_mlir_context",
    "kgen",
    "mo",
    "rmo",
]
