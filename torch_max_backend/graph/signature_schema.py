"""How a compiled model is called, as plain data that JSON can hold.

A loaded model needs nothing else of its graph, so nothing here imports what makes graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# In the ``meta`` of a traced module: its results are gradients, which may be views of arguments.
GRADIENTS = "gradients"


@dataclass(frozen=True)
class Layout:
    """How a tensor with torch's strides is made from a contiguous model output.

    The model returns the tensor with ``narrowed`` dims cut to size 1 and its dims in ``order``,
    outermost first. The runtime undoes both with views. ``strides`` (run-time expressions) is set
    where no view gives the strides, and the runtime copies.

    Attributes:
        order: Dims from outermost to innermost, or ``None`` for the natural order.
        narrowed: Dims that torch expanded (stride 0).
        sizes: Run-time expressions of the sizes, where ``narrowed`` or ``strides`` needs them.
        strides: Run-time expressions of the strides, for a copy.
    """

    order: tuple[int, ...] | None = None
    narrowed: tuple[int, ...] = ()
    sizes: tuple[str, ...] = ()
    strides: tuple[str, ...] = ()

    @property
    def is_contiguous(self) -> bool:
        return self.order is None and not self.narrowed and not self.strides


@dataclass(frozen=True)
class ModelInput:
    """One input of the compiled model.

    Attributes:
        kind: ``tensor`` (argument ``index``), ``constant`` (attribute ``source`` of the graph
            module), ``carrier`` (an empty tensor of shape ``[source, 0]`` that binds a dim),
            ``scalar`` (a 0-d tensor holding ``source``, of dtype ``dtype``), ``address`` (of the
            bank's routine ``source``) or ``seed`` (drawn at each call from the generator of the
            device ``source``).
        index: Position among the graph's arguments, for ``tensor``.
        source: Attribute name, run-time expression, routine or device.
        dtype: ``int64``, ``float64`` or ``bool``, for ``scalar``.
        mutated: The model writes to it in place.
        order: Dims of the argument in the order in which the model takes them.
    """

    kind: str
    index: int = -1
    source: str = ""
    dtype: str = ""
    mutated: bool = False
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Output:
    """One output of the traced graph.

    Attributes:
        kind: ``none``; ``value`` (output ``index`` of the model); ``input`` (argument ``index``
            itself); ``scalar`` (run-time expression ``source``).
        index: See ``kind``.
        source: See ``kind``.
        layout: How the model's contiguous output becomes a tensor with the strides torch promised.
        views: Of an ``input`` of which a view is returned: methods of `torch.Tensor` that take it,
            one after the other, and their numbers.
    """

    kind: str
    index: int = -1
    source: str = ""
    layout: Layout | None = None
    views: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass
class Signature:
    """How a traced graph is called.

    Attributes:
        arguments: Number of arguments of the traced graph.
        symbols: For each canonical symbol, ``(argument, dim)`` that holds it; dim -1 where the
            argument is the int itself.
        inputs: The model's inputs, in order.
        outputs: The graph's outputs, in order.
        layouts: Layout of each model output (those that are copied back included).
        copy_back: ``(argument, model output)`` of mutated arguments that MAX cannot write in place.
        maybe_aliased: Model outputs that MAX may return as memory of an input or another output.
        internal: Model outputs that only the backward graph takes: they may share memory.
        views: ``(model output, argument)`` of those that are views of an argument in torch's eyes,
            which keeps an eye on writes to it.
        data_symbols: For each canonical symbol that depends on data, ``(model output, dim)`` that
            holds it, the dim as the model returns it.
        checks: ``(run-time expression, message)`` of what has to hold after a run.
        bank: The identity of the provider of its matrix products; empty if it has none on CPU, or
            they are MAX's own.
        precision: Of its products of float32: "bf16" (on CPU) or "tf32" (on GPUs) if they may be
            rounded to it, else "ieee".
        bfloat16: What multiplies bfloat16 on this CPU: "tiles", "dots", or "" for its float32
            arithmetic.
        pairs: Complex arguments, which the graph takes as pairs of real numbers.
        pair_outputs: Outputs that are complex, of which the graph returns such pairs.
    """

    arguments: int
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    inputs: list[ModelInput] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    copy_back: list[tuple[int, int]] = field(default_factory=list)
    maybe_aliased: list[int] = field(default_factory=list)
    internal: list[int] = field(default_factory=list)
    views: list[tuple[int, int]] = field(default_factory=list)
    bank: str = ""
    data_symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    checks: list[tuple[str, str]] = field(default_factory=list)
    precision: str = "ieee"
    bfloat16: str = ""
    pairs: list[int] = field(default_factory=list)
    pair_outputs: list[int] = field(default_factory=list)
