"""A small program under test: traced, then run by one of the engines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._library.effects import EffectType
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import torch_max_backend.ops  # noqa: F401
from torch_max_backend.driver.passes import prepare
from torch_max_backend.graph.decompositions.table import decomposition_table
from torch_max_backend.graph.dispatch_override import whole
from torch_max_backend.graph.trace import Trace


@dataclass(eq=False)
class Program:
    """A function of tensors, with the arguments it is traced and called with.

    Attributes:
        name: For reports.
        function: Takes the tensors, returns a tensor or a structure of tensors.
        tensors: Its arguments.
        dynamic: Trace with symbolic sizes.
        wide: The function with float64 instead of the dtypes that it asks for itself, if it does.
        error: What tracing or conversion raised, if anything.
        model: MAX's model of the graph, if MAX has compiled it.
    """

    name: str
    function: Callable[..., Any]
    tensors: Sequence[torch.Tensor]
    dynamic: bool = False
    wide: Callable[..., Any] | None = None
    error: Exception | None = None
    trace: Trace | None = field(default=None, repr=False)
    model: Any = field(default=None, repr=False)
    executable: Callable[[list[Any]], list[Any]] | None = field(default=None, repr=False)

    def run(self, tensors: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """The tensors that the compiled program returns, for other arguments if they are given."""
        if self.error is not None:
            raise self.error
        assert self.executable is not None
        given = self.tensors if tensors is None else tensors
        return self.executable([t.detach().clone() for t in given])

    def eager(self, tensors: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """The tensors that eager PyTorch returns, for other arguments if they are given."""
        given = self.tensors if tensors is None else tensors
        return self.flat(*[t.detach().clone() for t in given])

    def assert_agrees(self, *, equal_nan: bool = False) -> None:
        """Assert that the compiled program returns what eager PyTorch does."""
        for ours, theirs in zip(self.run(), self.eager(), strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=equal_nan)

    def truth(self) -> list[torch.Tensor]:
        """What eager PyTorch returns for arguments in float64 or complex128."""
        function = self.wide or self.function
        leaves = pytree.tree_leaves(function(*map(_wide, self.tensors)))
        return [v for v in leaves if isinstance(v, torch.Tensor)]

    def flat(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves(self.function(*tensors))
        return [v for v in leaves if isinstance(v, torch.Tensor)]

    def node_targets(self) -> set[Any]:
        """The operators in the traced graph."""
        assert self.trace is not None
        return {n.target for n in self.trace.module.graph.nodes if n.op == "call_function"}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def trace_program(program: Program, change: Callable[[GraphModule], None] | None = None) -> Trace:
    """Trace a program to a functional ATen graph, decomposed by the package's table, which is
    changed before it is analysed if that is asked for."""

    def traced(function: Callable[..., Any]) -> GraphModule:
        return make_fx(
            function,
            decomposition_table=decomposition_table(),
            tracing_mode="symbolic" if program.dynamic else "fake",
            _allow_non_fake_inputs=True,
        )(*[t.detach().clone() for t in program.tensors])

    mode = FunctionalTensorMode()

    # Operators with effects take tokens, which AOTAutograd makes and keeps elsewhere.
    def ordered(*tensors: torch.Tensor) -> list[torch.Tensor]:
        made = {effect: torch.ops.prims._make_token() for effect in EffectType}
        mode._tokens = dict(made)
        results = program.flat(*tensors)
        used = [token for effect, token in mode._tokens.items() if token is not made[effect]]
        if used:
            torch.ops.prims._sink_tokens(used)
        return results

    with warnings.catch_warnings(), whole():
        warnings.simplefilter("ignore")
        module = traced(dispatch_functionalize(ordered, mode))
    module.graph.eliminate_dead_code()
    if change is not None:
        change(module)
    return prepare(module)
