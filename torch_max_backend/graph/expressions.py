"""Expressions of sizes as Python text: what they may hold, and functions made of them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection
from typing import Any

import torch

NAME = re.compile(r"[a-z][0-9]{1,9}")
_MAX_CHARACTERS = 10_000
_CALLS = frozenset({"abs", "max", "min", "round"})
_MATH = frozenset(
    {
        "acos", "asin", "atan", "ceil", "cos", "cosh", "exp", "floor", "inf", "log", "log2", "nan",
        "pi", "sin", "sinh", "tan", "tanh", "trunc",
    }
)  # fmt: skip
_TORCH = frozenset({"sym_float", "_sym_sqrt"})
_MODULES = {"math": _MATH, "torch": _TORCH}
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub,
    ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor, ast.Not, ast.And, ast.Or,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


def evaluator(texts: list[str], names: list[str]) -> Callable[..., list[Any]]:
    """One function of the named symbols that returns the values of all expressions.

    The texts are evaluated as Python code: those of a file have to pass ``checked`` first.
    """
    source = f"lambda {', '.join(names)}: [{', '.join(texts)}]"
    return eval(source, {"math": math, "torch": torch})


def checked(text: str, names: Collection[str]) -> str:
    """The text of an expression, if it is arithmetic on numbers and the named symbols alone.

    Raises:
        ValueError: It holds anything else: other names, attributes, calls, literals or syntax.
    """
    if not isinstance(text, str) or len(text) > _MAX_CHARACTERS:
        raise ValueError("an expression is no text, or too long")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise ValueError(f"no expression: {text[:80]!r}") from e
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Constant):
            fits = type(node.value) in (int, float, bool)
        elif isinstance(node, ast.Name):
            fits = node.id in names
        elif isinstance(node, ast.Attribute):
            fits = _function(node)
        elif isinstance(node, ast.Call):
            name = node.func
            fits = not node.keywords and (
                _function(name) or (isinstance(name, ast.Name) and name.id in _CALLS)
            )
            pending += node.args
        else:
            fits = isinstance(node, _NODES)
            pending += ast.iter_child_nodes(node)
        if not fits:
            raise ValueError(f"not allowed in an expression of sizes: {text[:80]!r}")
    return text


def _function(node: ast.AST) -> bool:
    """Whether a node is one of the functions and numbers of ``math`` and ``torch``."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in _MODULES.get(node.value.id, ())
    )
