"""Rules of complex numbers: formulas of real operators for one that takes or returns complex ones.

In the rules ``re`` and ``im`` are planes (``complex_planes.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.graph.passes.complex_values import Writer
from torch_max_backend.registry.lowerings import bind

aten = torch.ops.aten
Rule = Callable[[Writer, Any, Any, Any], Any]
rules: dict[OpOverload, Rule] = {}


class NotTaken(Exception):
    """A rule does not take these arguments; the message is the reason."""


def rule(*targets: OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what becomes of an operator: a function of the writer and of the arguments by their
    names in the schema, complex tensors as ``Complex``, others as ``Real``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        code = function.__code__
        names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        for target in targets:

            def called(w: Writer, node: Any, args: Any, kwargs: Any, op: Any = target) -> Any:
                bound = bind(op, args, kwargs)
                return function(w, **{k: v for k, v in bound.items() if k in names})

            rules[target] = called
        return function

    return decorate
