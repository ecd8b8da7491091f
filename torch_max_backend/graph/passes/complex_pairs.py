"""Complex numbers, which MAX has not, as two tensors of real numbers.

The pass rewrites a functional ATen graph: arguments and results that are complex become tensors of
pairs, shape ``[..., 2]``, which the runtime makes and unmakes as views; in between a value is two
planes (real parts, imaginary parts), on which what only moves numbers acts as on any tensor.
``graph/passes/complex_rules.py`` says what becomes of each operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from torch_max_backend.graph.signature import attribute

aten = torch.ops.aten

# The key of a graph module's ``meta`` under which ``graph/signature.py`` finds the positions of
# arguments and of outputs that are pairs.
_PAIRS = "pairs"

Number = int | float | bool
_COMPLEX = (torch.complex64, torch.complex128)


class Real:
    """A real tensor of the graph, to write formulas with."""

    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer = writer
        self.node = node

    @property
    def value(self) -> torch.Tensor:
        return self.node.meta["val"]

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    def to(self, dtype: torch.dtype) -> Real:
        if self.dtype == dtype:
            return self
        return self.writer(torch.ops.prims.convert_element_type.default, self, dtype)

    def __add__(self, other: Real | Number) -> Real:
        return self.writer(aten.add.Tensor, self, other)

    __radd__ = __add__

    def __sub__(self, other: Real | Number) -> Real:
        return self.writer(aten.sub.Tensor, self, other)

    def __rsub__(self, other: Number) -> Real:
        return self.writer(aten.rsub.Scalar, self, other)

    def __mul__(self, other: Real | Number) -> Real:
        return self.writer(aten.mul.Tensor, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Real | Number) -> Real:
        return self.writer(aten.div.Tensor, self, other)

    def __neg__(self) -> Real:
        return self.writer(aten.neg.default, self)

    def equals(self, other: Real | Number) -> Real:
        kind = aten.eq.Tensor if isinstance(other, Real) else aten.eq.Scalar
        return self.writer(kind, self, other)

    def at_least(self, other: Real | Number) -> Real:
        kind = aten.ge.Tensor if isinstance(other, Real) else aten.ge.Scalar
        return self.writer(kind, self, other)

    def filled(self, number: Number, **settings: Any) -> Real:
        """One number in this shape."""
        return self.writer(aten.full_like.default, self, number, **settings)


class Complex:
    """A complex tensor of the graph: planes or pairs, each made from the other when needed."""

    def __init__(
        self,
        writer: Writer,
        planes: tuple[Real, Real] | None = None,
        pairs: Real | None = None,
    ) -> None:
        self._writer = writer
        self._planes = planes
        self._pairs = pairs

    @property
    def planes(self) -> tuple[Real, Real]:
        if self._planes is None:
            source = self._pairs
            re, im = (self._writer(aten.select.int, source, -1, i) for i in (0, 1))
            self._planes = re, im
        return self._planes

    @property
    def re(self) -> Real:
        return self.planes[0]

    @property
    def im(self) -> Real:
        return self.planes[1]

    @property
    def pairs(self) -> Real:
        if self._pairs is None:
            columns = [self._writer(aten.unsqueeze.default, p, -1) for p in self.planes]
            self._pairs = self._writer(aten.cat.default, columns, -1)
            self._writer.made[self._pairs.node] = self
        return self._pairs

    @property
    def sized(self) -> Real:
        """Something with the same leading sizes."""
        if self._pairs is not None:
            return self._pairs
        return self.planes[0]


class Writer:
    """Writes nodes of a graph before one that is to be replaced."""

    def __init__(self, module: GraphModule) -> None:
        self.graph = module.graph
        values = [n.meta.get("val") for n in self.graph.nodes]
        self.mode = detect_fake_mode(values)
        # Nodes of pairs, so that their planes need not be taken out of them again.
        self.made: dict[Node, Complex] = {}
        # Before which node to write, and whose line in the user's source the new ones have.
        self.place: Node | None = None
        self.origin: Node | None = None

    def __call__(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """A call of an operator: what it returns, tensors as ``Real``."""
        args, kwargs = _mapped((args, kwargs), lambda v: v.node if isinstance(v, Real) else v)
        given = map_arg((args, kwargs), lambda n: n.meta["val"])
        with self.tracing():
            value = op(*given[0], **given[1])
        return self._wrapped(self.node(op, args, kwargs, value), value)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """In the body, operators compute metadata alone, symbolic sizes included."""
        with torch.no_grad(), self.mode, enable_python_dispatcher():
            yield

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the node to be replaced has."""
        return self.place.meta["val"].dtype

    def node(self, target: Any, args: Any, kwargs: Any, value: Any) -> Node:
        with self.graph.inserting_before(self.place):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {k: v for k, v in self.origin.meta.items() if k != "val"}
        node.meta["val"] = value
        return node

    def _wrapped(self, node: Node, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            parts = [self.node(operator.getitem, (node, i), {}, v) for i, v in enumerate(value)]
            return [Real(self, part) for part in parts]
        return Real(self, node)

    def complex(self, re: Any, im: Any, dtype: torch.dtype) -> Complex:
        """Of planes that may be numbers or, the imaginary one, ``None`` for zero.

        Args:
            re: Real parts; one of the two is a tensor.
            im: Imaginary parts.
            dtype: The complex dtype of the result.
        """
        if not isinstance(re, Real):
            re = im.filled(re)
        if not isinstance(im, Real):
            im = re.filled(im or 0)
        if re.value.shape != im.value.shape:
            # Of an operand without imaginary part, or without real part, the shape still counts.
            re, im = re + im.filled(0), im + re.filled(0)
        real = dtype.to_real()
        return Complex(self, (re.to(real), im.to(real)))

    def of_pairs(self, pairs: Real) -> Complex:
        known = self.made.get(pairs.node)
        return known if known is not None else Complex(self, pairs=pairs)


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, function) for v in value)
    if isinstance(value, dict):
        return {k: _mapped(v, function) for k, v in value.items()}
    return function(value)


def is_complex(value: Any) -> bool:
    """Whether a ``meta["val"]`` is or holds a complex tensor that this pass takes."""
    if isinstance(value, (list, tuple)):
        return any(is_complex(v) for v in value)
    return isinstance(value, torch.Tensor) and value.dtype in _COMPLEX


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
        from torch_max_backend.graph.capability import unsupported

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
        from torch_max_backend.graph.passes.complex_rules import NotTaken, rules
        from torch_max_backend.registry.lowerings import Refusal

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

        args, kwargs = _mapped(
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
