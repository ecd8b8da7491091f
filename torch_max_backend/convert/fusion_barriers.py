"""A graph that keeps MAX from fusing what it computes wrongly when fused, and from folding (26.7).

**Views that split vectors.** What follows a kernel (matmul, gather, layer_norm, a reduction) is
fused into the loop that writes the kernel's result, vector by vector along the kernel's own last
axis. When a view between the two makes that axis shorter (``[n, 25]`` seen as ``[n, 5, 5]``), one
vector covers several rows of the view, yet a broadcast operand is read for the first row alone:
wrong numbers, or a read beyond its end.

**Outer sums of symbolic sizes.** A value that is larger than each of its operands (``rows[:, None]
+ columns``) and is then broadcast again is read at its first element everywhere.

Such a value goes through a sequence of its own, which nothing is fused through; it copies nothing.

**Constants.** What can be computed from constants alone MAX computes while it compiles, in a second
module whose compile costs as much as the graph's own. So one constant of each such operation goes
through a sequence too. So does a constant divisor, whose reciprocal MAX would compute like that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from max.graph import (
    AlgebraicDim,
    Dim,
    Graph,
    Shape,
    SymbolicDim,
    TensorType,
    TensorValue,
    Value,
    ops,
)
from max.mlir.dialects import mo as mo_functions
from max.mlir.dialects import rmo as rmo_functions

from torch_max_backend.compat.max_graphs import ChainType, Operation, builtin, kgen, rmo
from torch_max_backend.compat.tracing import pytree

# No kernel's vector is wider: AVX-512's registers; a GPU's loads are of 16 bytes.
_VECTOR_BYTES = 64
# Computed where they are used, so what they are computed from decides.
_TRANSPARENT = frozenset(
    {
        "Abs", "Add", "And", "Atanh", "BroadcastTo", "Cast", "Ceil", "Cos", "Div", "Equal",
        "Erf", "Exp", "Floor", "Gelu", "GeluQuick", "GeluTanh", "Greater", "GreaterEqual",
        "IsInf", "IsNan", "Log", "Log1p", "Max", "Min", "Mod", "Mul", "Negative", "Not",
        "NotEqual", "Or", "Pow", "Rebind", "RebindTensorShape", "Relu", "Reshape", "Round",
        "Rsqrt", "Select", "Sigmoid", "Silu", "Sin", "Sqrt", "StaticReshape", "Sub", "Tanh",
        "Transpose", "Trunc", "Xor",
    }
)  # fmt: skip
_BROADCASTING = frozenset(
    {
        "Add", "And", "BroadcastTo", "Div", "Equal", "Greater", "GreaterEqual", "Max", "Min",
        "Mod", "Mul", "NotEqual", "Or", "Pow", "Select", "Sub", "Xor",
    }
)  # fmt: skip
_OPERANDS = frozenset({"input_x", "input_y"})
_SYMBOLIC = (SymbolicDim, AlgebraicDim)
_CONVOLUTIONS = frozenset({"ConvOp", "MoConvOp", "ConvTransposeOp", "MoConvTransposeOp"})
# The public operations that MAX adds by function instead of by type.
_UNTYPED = (mo_functions.custom, rmo_functions.concat)
# MAX makes these of constants without compiling anything.
_FREE = frozenset(
    {"Constant", "ConstantExternal", "Reshape", "StaticReshape", "BroadcastTo", "Rebind",
     "RebindTensorShape", "Sequence", "Call", "Output", "Yield"}
)  # fmt: skip
_MATERIAL = _CONVOLUTIONS | {"Block", "SequenceOp", "ConstantOp", "ConstantExternalOp", "CustomOp"}


class GuardedGraph(Graph):
    """A MAX graph that keeps views from being fused into a kernel where that is wrong."""

    unguarded = False

    def _add_op_generated(self, op_type: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if op_type is rmo.ReshapeOp:
            value, shape = kwargs["input"], Shape(kwargs["new_shape"])
            if (one := self._broadcast_constant(value)) is not None:
                op_type, kwargs["input"] = rmo.BroadcastToOp, one
            elif self._splits_vectors(value, shape):
                return [self._kept_apart(value, shape)]
        elif op_type is rmo.MoTransposeOp:
            value, shape = args[1], args[0].shape
            # A transpose that only moves ones is a view.
            if _real(value.shape) == _real(shape) and self._splits_vectors(value, shape):
                return [self._kept_apart(value, shape)]
        elif op_type is rmo.BroadcastToOp:
            shape = Shape(kwargs["new_shape"])
            kwargs["input"] = self._settled(kwargs["input"], shape)
        elif kwargs.keys() >= _OPERANDS and _stem(op_type) in _TRANSPARENT:
            names = [n for n, v in kwargs.items() if isinstance(v, TensorValue)]
            shape = _broadcast([kwargs[n].shape for n in names])
            for name in names:
                kwargs[name] = self._settled(kwargs[name], shape)
            if _stem(op_type) == "Div":
                kwargs["input_y"] = self._divisor(kwargs["input_y"])
        if _stem(op_type) not in _FREE:
            args, kwargs = self._unfolded(args, kwargs)
        return super()._add_op_generated(op_type, *args, **kwargs)

    def _add_op_get_op_with_results(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        if op in _UNTYPED:
            args, kwargs = self._unfolded(args, kwargs)
        return super()._add_op_get_op_with_results(op, *args, **kwargs)

    def _unfolded(self, args: Any, kwargs: Any) -> Any:
        """The operands of an operation, not all of them constants."""
        values = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Value)]
        if not values or not all(self._is_constant(v) for v in values):
            return args, kwargs
        first = next((v for v in values if v.rank), values[0])
        apart = self._kept_apart(first, Shape(first.shape))
        return pytree.tree_map(lambda v: apart if v is first else v, (args, kwargs))

    def _divisor(self, value: Value) -> Value:
        """A divisor that MAX does not see to be constant: it would multiply by the reciprocal,
        which it computes in a second module, and which rounds differently."""
        if not self._is_constant(value) or not value.dtype.is_float():
            return value
        one = self._broadcast_constant(value)
        if one is None:
            return self._kept_apart(value, Shape(value.shape))
        return ops.broadcast_to(self._kept_apart(one, Shape([])), value.shape)

    def _broadcast_constant(self, value: TensorValue) -> TensorValue | None:
        """The 0-d constant that ``value`` is broadcast from, if it is: a reshape of one MAX
        folds."""
        made = value._mlir_value.owner
        if _stem(type(made)) != "BroadcastTo":
            return None
        one = TensorValue.from_mlir(made.operands[0].value)
        return one if one.rank == 0 and self._is_constant(one) else None

    def _is_constant(self, value: Value) -> bool:
        if not isinstance(value, TensorValue):
            return False
        return self._known("_constants", value, _is_constant)

    def _kept_apart(self, value: TensorValue, shape: Shape) -> TensorValue:
        """``value`` in a shape of as many elements, behind what nothing is fused through."""

        def view(inner: TensorValue) -> TensorValue:
            made = super(GuardedGraph, self)._add_op_generated
            return made(rmo.ReshapeOp, input=inner, new_shape=shape)[0].tensor

        kind = TensorType(value.dtype, shape, value.device)
        return ops.side_stream([value], view, result_types=[kind], stream_id=0)[0]

    def _splits_vectors(self, value: TensorValue, shape: Shape) -> bool:
        if self.unguarded or rows_stay_whole(value, shape):
            return False
        return self._known("_written_by_kernels", value, _is_fused_into)

    def _settled(self, value: TensorValue, shape: Sequence[Dim]) -> TensorValue:
        """``value`` as it may be broadcast to ``shape``."""
        if list(value.shape) == list(shape) or not any(isinstance(d, _SYMBOLIC) for d in shape):
            return value
        if not self._known("_outer", value, _is_outer):
            return value
        return self._kept_apart(value, Shape(value.shape))

    def subgraph(self, name: str, input_types: Sequence[TensorType]) -> GuardedGraph:
        """A graph that this one can call, any number of times, and that is compiled once.

        Unlike ``Graph.add_subgraph`` it reads no kernel library again.
        """
        inner = GuardedGraph(
            name,
            input_types=[*input_types, ChainType()],
            module=self.module,
            kernel_library=self._kernel_library,
        )
        operation = Operation._from_cmlir(inner._mlir_op)
        operation.is_subgraph = builtin.UnitAttr()
        inner._params = dict.fromkeys([*inner._params, *self._params])
        number = kgen.SIMDType(1, kgen._KGENDType.get_int(64, True))
        operation.input_parameters = kgen.ParamDeclArrayAttr(
            [kgen.ParamDeclAttr(name, number) for name in inner._params]
        )
        return inner

    def _known(self, memory: str, value: TensorValue, judge: Callable[..., bool]) -> bool:
        """What ``judge`` says of a value; it is given the operation behind it and its verdicts on
        what that operation computes from, where it is transparent."""
        known: dict[Any, bool] = self.__dict__.setdefault(memory, {})
        waiting = [value._mlir_value]
        while waiting:
            at = waiting[-1]
            if at in known:
                waiting.pop()
                continue
            sources = []
            if _stem(type(at.owner)) in _TRANSPARENT:
                sources = [operand.value for operand in at.owner.operands]
            unknown = [s for s in sources if s not in known]
            if unknown:
                waiting.extend(unknown)
            else:
                known[at] = judge(at, sources, [known[s] for s in sources])
        return known[value._mlir_value]


def _stem(op_type: type) -> str:
    return op_type.__name__.removesuffix("Op").removeprefix("Mo")


def _is_fused_into(value: Any, sources: Sequence[Any], verdicts: Sequence[bool]) -> bool:
    """Whether a kernel that takes in what follows writes the value."""
    return any(verdicts) if sources else type(value.owner).__name__ not in _MATERIAL


def _is_outer(value: Any, sources: Sequence[Any], verdicts: Sequence[bool]) -> bool:
    """Whether the value is larger than each value of the memory that it is computed from."""
    if not sources:
        return False
    stem = _stem(type(value.owner))
    if stem not in _BROADCASTING:
        return any(verdicts)
    shape = _shape(value)
    shapes = [_shape(s) for s in sources]
    whole = (s for s, at, v in zip(sources, shapes, verdicts, strict=True) if at == shape and not v)
    if any(not _is_uniform(s) for s in whole):
        return False
    # One value everywhere is right wherever it is read.
    return any(verdicts) or any(d != 1 for s in sources if not _is_uniform(s) for d in _shape(s))


def _is_constant(value: Any, sources: Sequence[Any], verdicts: Sequence[bool]) -> bool:
    """Whether nothing but constants decides the value."""
    return all(verdicts) if sources else type(value.owner).__name__ == "ConstantOp"


def _is_uniform(value: Any) -> bool:
    """Whether the value is one number, broadcast."""
    while any(d != 1 for d in _shape(value)):
        if _stem(type(value.owner)) not in _TRANSPARENT or len(value.owner.operands) != 1:
            return False
        value = value.owner.operands[0].value
    return True


def _shape(value: Any) -> list[Dim]:
    return list(TensorValue.from_mlir(value).shape)


def _broadcast(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    result = [Dim(1)] * max(len(s) for s in shapes)
    for shape in shapes:
        for i, size in enumerate(shape, start=len(result) - len(shape)):
            if result[i] == 1:
                result[i] = size
    return result


@contextmanager
def for_convolution() -> Iterator[None]:
    """For views of what is convolved next: MAX picks the memory layout of a convolution's operands
    later, which a sequence would contradict, and fuses no convolution into what makes them."""
    graph = Graph.current
    graph.unguarded = True
    try:
        yield
    finally:
        graph.unguarded = False


def rows_stay_whole(value: TensorValue, shape: Shape) -> bool:
    """Whether no vector along the last axis of ``value`` can lie across two rows of ``shape``."""
    old, new = _width(value.shape), _width(shape)
    if old == new or old == 0:
        return True
    if (new // old) * old == new:
        return True
    lanes = _VECTOR_BYTES // value.dtype.size_in_bytes
    return all((width // lanes) * lanes == width for width in (old, new))


def _width(shape: Sequence[Dim]) -> Dim:
    return Dim(shape[-1]) if len(shape) else Dim(1)


def _real(shape: Sequence[Dim]) -> list[Dim]:
    return [d for d in shape if d != 1]
