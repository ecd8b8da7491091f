"""SymInts of a traced graph: canonical names, run-time expressions, MAX dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
import torch
from max.graph import Dim
from torch.fx import Node
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.printers import PythonPrinter

SymScalar = torch.SymInt | torch.SymFloat | torch.SymBool


def is_scalar_node(node: Node) -> bool:
    """Whether a node stands for a number, which the runtime evaluates in Python, not a tensor."""
    return isinstance(node.meta.get("val"), (SymScalar, int, float, bool))


def expression(value: Any) -> sympy.Expr:
    """The SymPy expression of an int, float, bool or symbolic scalar."""
    if isinstance(value, SymScalar):
        return value.node.expr
    return sympy.sympify(value)


def hint(value: Any) -> Any:
    """An example value of a symbolic scalar, the value itself of a plain one."""
    return value.node.hint if isinstance(value, SymScalar) else value


class Symbols:
    """Names ``d0``, ``d1``, ... for a graph's symbols, in order of first appearance.

    The names do not depend on where in the user's program the symbols came from, so that equal
    graphs have equal keys.
    """

    def __init__(self) -> None:
        self._names: dict[sympy.Symbol, sympy.Symbol] = {}
        self._carried: dict[str, str] = {}

    def canonical(self, value: Any) -> sympy.Expr:
        """The expression of ``value`` over canonical names."""
        expr = expression(value)
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in self._names:
                self._names[symbol] = sympy.Symbol(f"d{len(self._names)}", integer=True)
        return expr.xreplace(self._names)

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
        text = PythonPrinter().doprint(expr)
        return Dim(self._carried.setdefault(text, f"e{len(self._carried)}"))

    @property
    def carried(self) -> Mapping[str, str]:
        """Dim name by expression, for the expressions MAX dims cannot say."""
        return self._carried


def _to_dim(expr: sympy.Expr, carry: Callable[[sympy.Expr], Dim]) -> int | Dim:
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


def evaluator(texts: list[str], names: list[str]) -> Callable[..., list[Any]]:
    """One function of the named symbols that returns the values of all expressions."""
    source = f"lambda {', '.join(names)}: [{', '.join(texts)}]"
    return eval(source, {"math": math, "torch": torch})
