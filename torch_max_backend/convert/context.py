"""What a lowering may ask about the node it converts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from max.dtype import DType
from max.graph import DeviceRef, Dim, Graph, TensorValue
from torch.fx import Node


def has_own_functions() -> bool:
    """Whether what is built now is computed by functions of this package alone: MAX's own differ
    from torch's for NaN, infinities and float64."""
    return getattr(Graph.current, "own_functions", False)


@dataclass(frozen=True)
class TensorSpec:
    """What torch says a value is.

    Attributes:
        dtype: Its dtype.
        shape: Sizes, ``int`` where static, MAX dims over the graph's symbols elsewhere.
        device: Where it lives.
    """

    dtype: DType
    shape: tuple[int | Dim, ...]
    device: DeviceRef

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class RandomStream:
    """What tells the draws of one random node from those of all others.

    Attributes:
        seed: The call's seed, a rank-0 int64 on CPU.
        node: The number of the node among the graph's random nodes.
        instance: Which of the layers that share their code this is, a rank-0 int64 on CPU.
    """

    seed: TensorValue
    node: int
    instance: TensorValue


@dataclass(frozen=True)
class NodeContext:
    """The node under conversion.

    Attributes:
        node: The FX node.
        outputs: The spec of each output; ``None`` for one that is not a tensor.
        used: Whether each output has a user.
        bank: Whether products on CPU are the bank's, not MAX's own.
        addresses: Inputs of the graph that hold the addresses of the bank's routines, by name.
        stream: Of a random node, its draws.
        precision: Of products of float32: "bf16" (on CPU) or "tf32" (on GPUs) if they may be
            rounded to it, else "ieee".
        bfloat16: What multiplies bfloat16 on this CPU: "tiles", "dots", or "" for its float32
            arithmetic.
    """

    node: Node
    outputs: tuple[TensorSpec | None, ...]
    used: tuple[bool, ...]
    bank: bool = False
    addresses: Mapping[str, TensorValue] = field(default_factory=dict)
    stream: RandomStream | None = None
    precision: str = "ieee"
    bfloat16: str = ""


_current: ContextVar[NodeContext] = ContextVar("torch_max_backend_node")
_node: ContextVar[Node | None] = ContextVar("torch_max_backend_origin", default=None)


def current_node() -> NodeContext:
    """The context of the node that is being converted."""
    return _current.get()


def converting_node() -> Node | None:
    """The FX node that is being converted, or ``None`` between nodes."""
    return _node.get()


@contextmanager
def at(node: Node) -> Iterator[None]:
    """In the body, what is built is of this FX node."""
    token = _node.set(node)
    try:
        yield
    finally:
        _node.reset(token)


def expected(index: int = 0) -> TensorSpec:
    """What torch's metadata promises of output ``index`` of the node under conversion."""
    spec = current_node().outputs[index]
    assert spec is not None
    return spec


def is_used(index: int) -> bool:
    """Whether output ``index`` of the node under conversion has a user."""
    return current_node().used[index]


def random_stream() -> RandomStream:
    """The draws of the node under conversion, whose lowering is registered with ``random=True``."""
    stream = current_node().stream
    assert stream is not None
    return stream


@contextmanager
def converting(context: NodeContext) -> Iterator[None]:
    """Make a node the one that is being converted."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
