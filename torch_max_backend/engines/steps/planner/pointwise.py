"""Which operations are element-wise, what instruction each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_max_backend.engines.steps.planner.graph import Node, Value
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.engines.steps.planner.tasks import Number
from torch_max_backend.engines.steps.planner.views import View

# MAX's operation to the instruction of a program.
_INSTRUCTIONS = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Mod": "mod", "FloorDiv": "floor_div",
    "Pow": "pow", "Max": "max", "Min": "min", "Equal": "equal", "NotEqual": "not_equal",
    "Greater": "greater", "GreaterEqual": "greater_equal", "And": "and", "Or": "or", "Xor": "xor",
    "Not": "not", "Negative": "negative", "Abs": "abs", "Exp": "exp", "Log": "log",
    "Log1p": "log1p", "Sqrt": "sqrt", "Rsqrt": "rsqrt", "Sin": "sin", "Cos": "cos",
    "Tanh": "tanh", "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid", "Silu": "silu",
    "Gelu": "gelu", "GeluTanh": "gelu_tanh", "GeluQuick": "gelu_quick", "Relu": "relu",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Trunc": "trunc", "IsNan": "is_nan",
    "IsInf": "is_inf", "Select": "select", "Cast": "cast",
}  # fmt: skip
# Kernels whose every element is a function of the operands' elements there.
_KERNELS = frozenset(
    {"tmb_unary", "tmb_binary", "tmb_binary_scalar", "tmb_exponent", "tmb_sign_bit"}
)


def is_pointwise(node: Node) -> bool:
    """Whether every element of the result is a function of the operands' elements there."""
    if node.op == "Custom":
        return node.attributes["symbol"] in _KERNELS
    return node.op in _INSTRUCTIONS


def instruction(
    node: Node, views: Sequence[View], constants: Mapping[Value, torch.Tensor]
) -> tuple[str, list[View | Number]]:
    """The instruction that a node is, and its operands.

    Raises:
        NotPlanned: A number of it is computed.
    """
    if node.op == "Div" and "float" not in node.results[0].dtype:
        # MAX truncates, and corrects by the remainder where it wants the floor: of the floor, that
        # leaves nothing to correct.
        return "floor_div", list(views)
    if node.op != "Custom":
        return _INSTRUCTIONS[node.op], list(views)
    symbol, parameters = node.attributes["symbol"], node.attributes["parameters"]
    if symbol in ("tmb_unary", "tmb_binary"):
        return parameters["kind"], list(views)
    if symbol == "tmb_binary_scalar":
        tensor = constants.get(views[1].root)
        if tensor is None:
            number: Any = views[1]
        else:
            number = Number(float(tensor.item()), views[0].dtype)
        operands = [number, views[0]] if parameters["first"] else [views[0], number]
        if tensor is None and views[1].dtype != views[0].dtype:
            raise NotPlanned(f"the kernel {symbol} with a computed number")
        return parameters["kind"], operands
    return symbol.removeprefix("tmb_"), list(views)
