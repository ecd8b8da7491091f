"""SymInts of a traced graph: canonical names, run-time expressions, MAX dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import Node

from torch_max_backend.compat.symbols import FloorDiv, PythonPrinter, SymT, symbol_is_type
from torch_max_backend.compat.torch_versions import optimization_hint
from torch_max_backend.errors import UnsupportedOperatorError

if TYPE_CHECKING:
    from max.graph import Dim

SymScalar = torch.SymInt | torch.SymFloat | torch.SymBool


def is_scalar_node(node: Node) -> bool:
    """Whether a node stands for a number, which the runtime evaluates in Python, not a tensor."""
    return isinstance(node.meta.get("val"), (SymScalar, int, float, bool))


def is_empty(value: torch.Tensor) -> bool:
    """Whether a size is 0. Torch makes constants of sizes that are, unless they depend on data."""
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def expression(value: Any) -> sympy.Expr:
    """The SymPy expression of an int, float, bool or symbolic scalar."""
    if isinstance(value, SymScalar):
        return value.node.expr
    return sympy.sympify(value)


# Stands for a size that depends on data.
_SOME_SIZE = 4099


def hint(value: Any) -> Any:
    """An example value of a symbolic scalar, the value itself of a plain one."""
    if not isinstance(value, SymScalar):
        return value
    if value.node.hint is not None or not isinstance(value, torch.SymInt):
        return value.node.hint
    return optimization_hint(value, fallback=_SOME_SIZE)


class Symbols:
    """Names ``d0``, ``d1``, ... for a graph's symbols, in order of first appearance.

    The names do not depend on where in the user's program the symbols came from, so that equal
    graphs have equal keys.
    """

    def __init__(self) -> None:
        self._names: dict[sympy.Symbol, sympy.Symbol] = {}
        self._carried: dict[str, str] = {}
        self._unbacked: set[str] = set()

    def canonical(self, value: Any) -> sympy.Expr:
        """The expression of ``value`` over canonical names."""
        expr = expression(value)
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in self._names:
                name = f"d{len(self._names)}"
                self._names[symbol] = sympy.Symbol(name, integer=True)
                if symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)):
                    self._unbacked.add(name)
        return expr.xreplace(self._names)

    def given(self, names: Iterable[str]) -> None:
        """Tell which symbols arguments hold: those do not depend on what the graph computes."""
        self._unbacked.difference_update(names)

    @property
    def unbacked(self) -> Collection[str]:
        """The names that only a result of the graph tells."""
        return self._unbacked

    def from_data(self, value: Any) -> set[str]:
        """The names in ``value`` that only a result of the graph tells."""
        return {s.name for s in self.canonical(value).free_symbols} & self._unbacked

    def text(self, value: Any) -> str:
        """A Python expression over canonical names; ``evaluator`` makes a function of it."""
        if type(value) is int:
            return str(value)
        return PythonPrinter().doprint(self.canonical(value))

    def dim(self, value: Any) -> int | Dim:
        """A static size as ``int``, a symbolic one as a MAX dim.

        Expressions beyond +, * and // have no MAX form: they get a name of their own, bound at
        run time by an input whose only content is its shape (``carried``).
        """
        if isinstance(value, int):
            return value
        return _to_dim(self.canonical(value), self._carry)

    def _carry(self, expr: sympy.Expr) -> Dim:
        from max.graph import Dim

        text = PythonPrinter().doprint(expr)
        if any(s.name in self._unbacked for s in expr.free_symbols):
            raise UnsupportedOperatorError(
                f"A size of the graph is {text}, computed from a size that depends on data; MAX "
                "knows +, * and // of such sizes."
            )
        return Dim(self._carried.setdefault(text, f"e{len(self._carried)}"))

    @property
    def carried(self) -> Mapping[str, str]:
        """Dim name by expression, for the expressions MAX dims cannot say."""
        return self._carried


def _to_dim(expr: sympy.Expr, carry: Callable[[sympy.Expr], Dim]) -> int | Dim:
    from max.graph import Dim

    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return Dim(expr.name)
    parts: Iterable[sympy.Expr] = expr.args
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 1 < int(expr.exp) <= 4:
        parts = [expr.base] * int(expr.exp)
        return math.prod((_to_dim(p, carry) for p in parts), start=Dim(1))
    if isinstance(expr, sympy.Add):
        return sum((_to_dim(p, carry) for p in parts), start=Dim(0))
    if isinstance(expr, sympy.Mul) and all(not p.is_Rational or p.is_Integer for p in parts):
        return math.prod((_to_dim(p, carry) for p in parts), start=Dim(1))
    if isinstance(expr, FloorDiv):
        base, divisor = expr.args
        return Dim(_to_dim(base, carry)) // Dim(_to_dim(divisor, carry))
    return carry(expr)
