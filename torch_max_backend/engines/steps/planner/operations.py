"""What MAX's operations hold: operands, attributes, sizes, constants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from max.dtype import DType
from max.graph import StaticDim

from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.sizes import Expr, Size, Sizes
from torch_max_backend.max_dtypes import MAX_TO_TORCH

# Operations whose class has no name of its own in MAX's Python bindings.
# "Operation(%1 = rmo.mo.not(", or "Operation(mo.while.condition(".
_NAME = re.compile(r"Operation\((?:%[^=]*= )?(?:r?mo\.)?([a-z_.]+)")
_AXIS = re.compile(r"axis = (-?\d+)")


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor or a buffer, not a chain."""
    return type(value.type).__name__ in ("TensorType", "BufferType")


def operands_of(operation: Any) -> list[Any]:
    """The values that an operation takes; the bindings wrap them for some kinds of operation."""
    return [getattr(o, "value", o) for o in operation.operands]


def name_of(operation: Any) -> str:
    """An operation's name without its dialect, ``"Add"``."""
    name = type(operation).__name__
    if name != "Operation":
        if name == "MoSliceOp":
            return "MoSlice"  # its bounds are operands, those of a slice attributes
        # "MoTranspose", but "Mod" is an operation of its own.
        return re.sub("^Mo(?=[A-Z])", "", name.removesuffix("Op"))
    found = _NAME.match(str(operation))
    words = found[1].replace("mo.", "").split(".") if found else ["Unknown"]
    return "".join(w.title() for part in words for w in part.split("_"))


def attributes_of(operation: Any, name: str) -> dict[str, Any]:
    """What an operation of a name holds besides operands, as numbers, strings and sizes."""
    if name == "Custom":
        return {
            "symbol": str(operation.symbol),
            "parameters": _parameters(operation.parameters),
        }
    if name == "Slice":
        return {
            "starts": sizes_of(operation.starts),
            "stops": sizes_of(operation.stops),
            "steps": sizes_of(operation.steps),
        }
    if name == "ShapeToTensor":
        return {"sizes": sizes_of(operation.shape)}
    if type(operation).__name__ == "Operation":
        axis = _AXIS.search(str(operation))
        return {} if axis is None else {"axis": int(axis[1])}
    found = {}
    for key in ("axis", "exclusive", "reverse"):
        value = getattr(operation, key, None)
        if value is not None:
            found[key] = int(value) if isinstance(value, int) else int(_number(value))
    return found


def _number(attribute: Any) -> int:
    """The value of an attribute that is one number."""
    value = getattr(attribute, "value", attribute)
    return int(value)


def _parameters(attribute: Any) -> dict[str, Any]:
    """The compile-time parameters of a kernel."""
    if attribute is None:
        return {}
    return {str(getattr(k, "value", k)): _parameter(v) for k, v in _items(attribute.value)}


def _items(entries: Any) -> Iterable[tuple[Any, Any]]:
    if hasattr(entries, "items"):
        return entries.items()
    return [(e.name, e.value) for e in entries]


def _parameter(attribute: Any) -> Any:
    kind = type(attribute).__name__
    value: Any = getattr(attribute, "value", None)
    if kind == "StringAttr":
        return str(value)
    if kind == "BoolAttr":
        return bool(value)
    if kind == "IntegerAttr":
        text = str(getattr(attribute, "asm", attribute))
        if text in ("true", "false") or text.endswith(": i1"):
            return bool(value)
        return int(value)
    if kind == "UnitAttr":
        return True
    return str(getattr(attribute, "asm", attribute))


def constant_of(operation: Any) -> torch.Tensor:
    """The tensor of a constant.

    Raises:
        NotPlanned: Its bytes cannot be read.
    """
    kind = operation.results[0].type
    data = getattr(operation.value, "data", None)
    if data is None or getattr(data, "data", None) is None:
        raise NotPlanned("a constant in a form that cannot be read")
    raw = bytearray(bytes(b & 255 for b in data.data))
    shape: list[Any] = [*sizes_of(kind.shape)]
    dtype = MAX_TO_TORCH[kind.dtype]
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).clone().reshape(shape)


def dtype_of(dtype: DType) -> str:
    """MAX's name of a dtype, which is torch's."""
    return dtype.name


def sizes_of(shape: Any) -> Sizes:
    """A shape as numbers and expressions of symbols."""
    return tuple(_size(v) for v in shape.values)


def _size(attribute: Any) -> Size:
    kind = type(attribute).__name__
    if kind == "SIMDAttr":
        return int(StaticDim(attribute))
    if kind == "ParamDeclRefAttr":
        return Expr.symbol(str(getattr(attribute.name, "value", attribute.name)))
    if kind == "ParamOperatorAttr":
        opcode = str(getattr(attribute.opcode, "name", attribute.opcode)).split(".")[-1]
        operands = [_size(o) for o in attribute.operands]
        return _apply(opcode, operands)
    raise NotPlanned(f"a size of another kind ({attribute})")


def _apply(opcode: str, operands: list[Size]) -> Size:
    first, *rest = operands
    result: Any = first
    for other in rest:
        if opcode.startswith("add"):
            result = result + other
        elif opcode.startswith("mul"):
            result = result * other
        elif opcode.startswith("div"):
            result = result // other
        else:
            raise NotPlanned(f"the operation {opcode!r} on sizes")
    return result
