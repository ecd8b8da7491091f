"""Complex numbers, which MAX does not support, as two tensors of real numbers.

The pass rewrites a functional ATen graph: arguments and results that are complex become tensors of
pairs, shape ``[..., 2]``, which the runtime makes and unmakes as views; in between a value is two
planes (real parts, imaginary parts), on which what only moves numbers acts as on any tensor.
``graph/passes/complex_rules.py`` says what becomes of each operator.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.graph.capability import unsupported
from torch_max_backend.graph.passes.complex_rules import NotTaken, rules
from torch_max_backend.graph.passes.complex_values import (
    Complex,
    Real,
    Writer,
    is_complex,
    mapped,
)
from torch_max_backend.graph.trace import attribute
from torch_max_backend.registry.lowerings import Refusal

aten = torch.ops.aten

# The key of a graph module's ``meta`` under which ``graph/signature.py`` finds the positions of
# arguments and of outputs that are pairs.
_PAIRS = "pairs"


def real_pairs(module: GraphModule) -> None:
    """Rewrite a graph that holds complex values into one of real ones; others stay as they are.

    Raises:
        UnsupportedOperatorError: Operators without a rule.
    """
    if any(is_complex(n.meta.get("val")) for n in module.graph.nodes):
        _Rewriter(module).run()


class _Rewriter:
    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.writer = Writer(module)
        self.values: dict[Node, Any] = {}
        self.problems: dict[str, list[tuple[Node, Any]]] = {}

    def run(self) -> None:
        nodes = list(self.module.graph.nodes)
        arguments = [n for n in nodes if n.op == "placeholder"]
        first = next(n for n in nodes if n.op != "placeholder")
        pairs = [i for i, n in enumerate(arguments) if is_complex(n.meta.get("val"))]
        self.module.meta[_PAIRS] = (pairs, [])
        for node in nodes:
            self.writer.place = first if node.op == "placeholder" else node
            self.writer.origin = node
            self._rewrite(node)
        if self.problems:
            raise unsupported(self.problems)
        for node in reversed(nodes):
            if node in self.values and node.op != "placeholder":
                self.module.graph.erase_node(node)
        self.module.graph.eliminate_dead_code(
            lambda n: n.is_impure() or n.target is aten.copy_.default
        )
        self.module.recompile()

    def _rewrite(self, node: Node) -> None:
        value = node.meta.get("val")
        if node.op == "placeholder":
            if is_complex(value):
                with self.writer.tracing():
                    node.meta["val"] = torch.view_as_real(value.resolve_conj().resolve_neg())
                self.values[node] = Complex(self.writer, pairs=Real(self.writer, node))
        elif node.op == "get_attr":
            if is_complex(value):
                self.values[node] = self._attribute(node)
        elif node.op == "output":
            self._output(node)
        elif any(n in self.values for n in node.all_input_nodes) or is_complex(value):
            self._call(node)
        elif node.target is aten.select.int:
            self._select(node)

    def _attribute(self, node: Node) -> Complex:
        tensor = attribute(self.module, str(node.target)).detach()
        name = f"{str(node.target).replace('.', '_')}_pairs"
        pairs = torch.view_as_real(tensor.resolve_conj().resolve_neg()).contiguous()
        setattr(self.module, name, pairs)
        with self.module.graph.inserting_before(node):
            stored = self.module.graph.create_node("get_attr", name)
        with self.writer.tracing():
            stored.meta["val"] = torch.empty(pairs.shape, dtype=pairs.dtype, device=pairs.device)
        return Complex(self.writer, pairs=Real(self.writer, stored))

    def _output(self, node: Node) -> None:
        results = list(node.args[0])
        for i, item in enumerate(results):
            if not isinstance(item, Node) or item not in self.values:
                continue
            self.module.meta[_PAIRS][1].append(i)
            self.writer.origin = item
            pairs = self.values[item].pairs.node
            if item.op != "placeholder":
                with self.writer.tracing():
                    value = item.meta["val"].resolve_conj().resolve_neg()
                    value = torch.view_as_real(value)
                pairs = self.writer.node(aten.alias.default, (pairs,), {}, value)
            results[i] = pairs
        node.args = (tuple(results),)

    def _select(self, node: Node) -> None:
        """A plane of pairs that were made of planes."""
        source, dim, index = node.args
        known = self.writer.made.get(source)
        if known is not None and index in (0, 1) and dim in (-1, source.meta["val"].dim() - 1):
            node.replace_all_uses_with(known.planes[index].node)

    def _call(self, node: Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            if source in self.values:
                self._keep(node, self.values[source][index])
            return
        rule = rules.get(node.target)
        reason = "it has no rule for complex numbers"
        if rule is not None:
            try:
                self._keep(node, rule(self.writer, node, *self._arguments(node)))
                return
            except NotTaken as e:
                reason = str(e)
        self.problems.setdefault(str(node.target), []).append((node, Refusal(reason)))
        # What follows is looked at as if it had been taken.
        self._keep(node, self._stand_in(node.meta.get("val")))

    def _arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as ``Complex``, ``Real`` or what they are."""

        def known(n: Node) -> Any:
            if n in self.values:
                return self.values[n]
            return Real(self.writer, n) if isinstance(n.meta.get("val"), torch.Tensor) else n

        args, kwargs = mapped(
            (node.args, dict(node.kwargs)), lambda v: known(v) if isinstance(v, Node) else v
        )
        return args, kwargs

    def _keep(self, node: Node, value: Any) -> None:
        """Remember what replaces a node, or let its users take a real value."""
        if isinstance(value, Real):
            node.replace_all_uses_with(value.node)
            self.values[node] = value
        elif isinstance(value, Node):
            node.replace_all_uses_with(value)
            self.values[node] = value
        else:
            self.values[node] = value

    def _stand_in(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._stand_in(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        with self.writer.tracing():
            if not is_complex(value):
                return Real(self.writer, self.writer.node(aten.alias.default, (), {}, value))
            planes = [torch.empty_like(value, dtype=value.dtype.to_real()) for _ in range(2)]
        nodes = [self.writer.node(aten.alias.default, (), {}, p) for p in planes]
        return Complex(self.writer, (Real(self.writer, nodes[0]), Real(self.writer, nodes[1])))
