"""torch's symbolic sizes. Imports sympy, which a warm start does without."""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch.utils._sympy.functions import FloorDiv, Max, ToFloat
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.printers import PythonPrinter
    from torch.utils._sympy.symbol import SymT, symbol_is_type

__all__ = ["FloorDiv", "Max", "PythonPrinter", "SymT", "ToFloat", "int_oo", "symbol_is_type"]
