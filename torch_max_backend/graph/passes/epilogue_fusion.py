"""What follows a convolution or a matrix product becomes part of it.

Kernels of the bank are opaque to MAX, so it fuses nothing into them; they finish their sums while
those are in the cache. This pass replaces such sequences by operators of this package's own.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.graph.passes.activations import written_out
from torch_max_backend.graph.shapes import is_empty

aten = torch.ops.aten

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define(
    "fused_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, "
    "SymInt[] padding, SymInt[] dilation, SymInt groups, Tensor? norm_weight, Tensor? norm_bias, "
    "Tensor? mean, Tensor? variance, float epsilon, Tensor? residual, str activation) -> Tensor"
)
_library.define("fused_addmm(Tensor? self, Tensor mat1, Tensor mat2, str activation) -> Tensor")

# What the kernels can do to their results: by operator and the arguments behind its input.
_ACTIVATIONS: Mapping[tuple[Any, tuple[Any, ...]], str] = {
    (aten.relu.default, ()): "relu",
    (aten.hardtanh.default, (0, 6)): "relu6",
    (aten.hardsigmoid.default, ()): "hardsigmoid",
    (aten.hardswish.default, ()): "hardswish",
    (aten.silu.default, ()): "silu",
    (aten.gelu.default, ("none",)): "gelu",
    (aten.gelu.default, ("tanh",)): "gelu_tanh",
}
# Those that fit any dtype: they do not round. Mojo's erf, exp and tanh have float32's precision.
_ANY_DTYPE = ("relu", "relu6")
# Those that become part of a matrix product.
_OF_PRODUCTS = ("relu", "silu", "gelu", "gelu_tanh")
_NORM = aten._native_batch_norm_legit_no_training.default
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def _fused_convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    norm_weight: torch.Tensor | None,
    norm_bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    epsilon: float,
    residual: torch.Tensor | None,
    activation: str,
) -> torch.Tensor:
    """What the operator means, in ATen: eager execution of a graph that has it."""
    no = [0] * len(stride)
    x = aten.convolution(input, weight, bias, stride, padding, dilation, False, no, groups)
    if variance is not None:
        x = _NORM(x, norm_weight, norm_bias, mean, variance, 0.0, epsilon)[0]
    if residual is not None:
        x = x + residual
    return _activated(x, activation)


def _fused_addmm(
    self: torch.Tensor | None, mat1: torch.Tensor, mat2: torch.Tensor, activation: str
) -> torch.Tensor:
    """What the operator means, in ATen."""
    x = aten.mm(mat1, mat2) if self is None else aten.addmm(self, mat1, mat2)
    return _activated(x, activation)


def _activated(x: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "none":
        return x
    (function, others) = next(k for k, v in _ACTIVATIONS.items() if v == activation)
    if function is aten.gelu.default:
        return function(x, approximate=others[0])
    return function(x, *others)


_library.impl("fused_convolution", _fused_convolution, "CompositeExplicitAutograd")
_library.impl("fused_addmm", _fused_addmm, "CompositeExplicitAutograd")


def fuse_epilogues(module: GraphModule, bfloat16: bool = False) -> None:
    """Replace convolutions and products on CPU, and what follows them alone, by one operator.

    Args:
        module: The graph.
        bfloat16: Whether the kernel takes convolutions of bfloat16 as they are.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.target is aten.convolution.default:
            changed |= _fuse_convolution(module, node, bfloat16)
        elif node.target in (aten.addmm.default, aten.mm.default):
            changed |= _fuse_product(module, node)
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()


@dataclass
class _Norm:
    """The arguments of a batch norm of known statistics."""

    weight: Any = None
    bias: Any = None
    mean: Any = None
    variance: Any = None
    epsilon: float = 0.0


def _fuse_convolution(module: GraphModule, node: Node, bfloat16: bool) -> bool:
    (input, weight, bias, stride, padding, dilation, transposed, _, groups) = node.args
    value = node.meta["val"]
    if transposed or not 3 <= value.dim() <= 4:
        return False
    narrow = bfloat16 and value.dtype == torch.bfloat16 and weight.meta["val"].shape[1] != 1
    if not _is_fit(node, input, weight, narrow=narrow):
        return False
    last, norm, residual = node, _Norm(), None
    follower = _only_user(last)
    # Rounded between the two; with a bias there is no place for that.
    rounded_once = narrow and bias is not None
    if follower is not None and follower.target is _NORM and not rounded_once:
        taken = _only_user(follower)
        first = taken is not None and taken.target is operator.getitem and taken.args[1] == 0
        if follower.args[0] is last and first and _same_dtype(value, follower.args[1:5]):
            scale, shift, mean, variance, _, epsilon = follower.args[1:]
            norm = _Norm(scale, shift, mean, variance, epsilon)
            last, follower = taken, _only_user(taken)
    if follower is not None and follower.target is aten.add.Tensor and not follower.kwargs:
        other = next((a for a in follower.args if a is not last), None)
        if _is_like(other, value):
            residual, last = other, follower
    end, activation = _activation_after(last)
    if end is not None:
        last = end
    if last is node:
        return False
    arguments = (
        input, weight, bias, stride, padding, dilation, groups,
        norm.weight, norm.bias, norm.mean, norm.variance, norm.epsilon, residual,
        activation or "none",
    )  # fmt: skip
    _replace(module, last, torch.ops.torch_max_backend.fused_convolution.default, arguments)
    return True


def _fuse_product(module: GraphModule, node: Node) -> bool:
    value = node.meta["val"]
    bias, (a, b) = None, node.args[-2:]
    if node.target is aten.addmm.default:
        bias = node.args[0]
        if node.kwargs or tuple(bias.meta["val"].shape) != (value.shape[1],):
            return False
    if not _is_fit(node, a, b):
        return False
    last = node
    while (follower := _only_user(last)) is not None and follower.target in _VIEWS:
        last = follower
    end, activation = _activation_after(last)
    if end is None or activation not in _OF_PRODUCTS:
        return False
    arguments = (bias, a, b, activation)
    if last is not node:
        _replace(module, node, torch.ops.torch_max_backend.fused_addmm.default, arguments)
        end.replace_all_uses_with(last)
    else:
        _replace(module, end, torch.ops.torch_max_backend.fused_addmm.default, arguments)
    return True


def _activation_after(node: Node) -> tuple[Node | None, str | None]:
    """The node that makes an activation of what a node makes, which nothing else uses, and its
    name as the kernels know it."""
    follower = _only_user(node)
    name = None if follower is None else _activation(follower)
    if name is not None:
        return follower, name
    if node.meta["val"].dtype == torch.float32:
        return written_out(node) or (None, None)
    return None, None


def _activation(node: Node) -> str | None:
    """The name of the activation that a node is, as the kernels know it."""
    others = node.args[1:]
    if node.target is aten.gelu.default:
        others = (node.kwargs.get("approximate", "none"),)
    for (target, wanted), name in _ACTIVATIONS.items():
        if target is node.target and others == wanted:
            fits = name in _ANY_DTYPE or node.meta["val"].dtype == torch.float32
            return name if fits else None
    return None


def _replace(module: GraphModule, node: Node, target: Any, arguments: tuple[Any, ...]) -> None:
    with module.graph.inserting_before(node):
        fused = module.graph.call_function(target, arguments)
    fused.meta = dict(node.meta)
    node.replace_all_uses_with(fused)
    module.graph.erase_node(node)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_fit(*nodes: Node, narrow: bool = False) -> bool:
    values = [n.meta.get("val") for n in nodes]
    return all(
        isinstance(v, torch.Tensor)
        and v.device.type == "cpu"
        and v.dtype in (torch.float32, torch.float64, *([torch.bfloat16] if narrow else []))
        and not is_empty(v)
        for v in values
    )


def _is_like(node: Any, value: torch.Tensor) -> bool:
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    other = node.meta["val"]
    return other.dtype == value.dtype and other.shape == value.shape


def _same_dtype(value: torch.Tensor, nodes: tuple[Any, ...]) -> bool:
    return all(n is None or n.meta["val"].dtype == value.dtype for n in nodes)
