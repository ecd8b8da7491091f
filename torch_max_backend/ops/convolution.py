"""Convolutions, plain and transposed, of one to three spatial dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.convert.fusion_barriers import for_convolution
from torch_max_backend.graph.arguments import per_dimension
from torch_max_backend.graph.passes import epilogue_fusion  # noqa: F401  it defines operators
from torch_max_backend.max_dtypes import SIXTEEN_BIT_FLOATS
from torch_max_backend.ops.common.bank import ACTIVATIONS, nothing, routine
from torch_max_backend.ops.common.images import (
    lifted,
    numbers,
    planar,
    planar_settings,
    planar_shape,
    three,
)
from torch_max_backend.ops.common.positions import static
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


def _supported(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
) -> Refusal | None:
    if input.dim() > 5:
        return Refusal("MAX convolves at most three spatial dimensions")
    settings = [*stride, *padding, *dilation, *output_padding]
    if transposed:
        settings += weight.shape[2:]
    if any(isinstance(v, torch.SymInt) for v in settings):
        return Refusal("a symbolic stride, padding, dilation or transposed kernel")
    return None


def _kernels(input: torch.Tensor, transposed: bool) -> str | None:
    """The library for integers, which MAX does not convolve, for volumes, or for transposed
    convolutions."""
    if not input.is_floating_point():
        return "convolution.integers"
    if input.dim() == 5 and input.device.type == "cpu":
        return "convolution.volumes"
    return "convolution.transposed" if transposed and input.device.type == "cpu" else None


@map_to(aten.convolution.default, supports=_supported, kernels=_kernels, native16=True, bank=True)
def convolution(
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> TensorValue:
    """convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding,
    SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor"""
    planes = input.rank < 5 and not transposed
    if _widens(input) and not (planes and _in_pairs(input, weight)):
        settings = (stride, padding, dilation, transposed, output_padding, groups)
        wide = None if bias is None else _wide(bias)
        return ops.cast(convolution(_wide(input), _wide(weight), wide, *settings), input.dtype)
    spec = expected()
    if is_empty(spec.shape):
        return full(0, input.dtype, spec.shape, input.device)
    spatial = input.rank - 2
    stride, padding, dilation, output_padding = (
        per_dimension(v, spatial) for v in (stride, padding, dilation, output_padding)
    )
    pads = [(p, p) for p in padding]
    addresses = routine(input.dtype, input.device) if input.dtype.is_float() else None
    if transposed and addresses is not None and spatial < 3:
        return _transposed(input, weight, bias, stride, padding, dilation, groups)
    if transposed:
        kernel = [int(k) for k in weight.shape[2:]]
        input = _spread(input, stride)
        weight = _turned(weight, groups)
        pads = [
            (d * (k - 1) - p, d * (k - 1) - p + o)
            for d, k, p, o in zip(dilation, kernel, padding, output_padding, strict=True)
        ]
        input, pads = _cropped(input, pads)
        stride = [1] * spatial
    input, weight, pads = _reached(input, weight, stride, pads, dilation)
    if is_empty(input.shape) or is_empty(weight.shape):
        result = full(0, input.dtype, spec.shape, input.device)
    elif not input.dtype.is_float():
        result = _of_integers(input, weight, stride, pads, dilation, groups)
    elif addresses is not None and spatial < 3:
        return _by_products(
            input, weight, bias, stride, pads, dilation, groups, addresses, _After()
        )
    elif addresses is not None:
        return _of_volumes(input, weight, bias, stride, pads, dilation, groups)
    else:
        result = _convolved(input, weight, stride, pads, dilation, groups)
    if bias is not None:
        result = result + ops.reshape(bias, [bias.shape[0], *[1] * spatial])
    return result


def _widens(input: TensorValue) -> bool:
    return input.dtype in SIXTEEN_BIT_FLOATS and input.device.is_cpu()


def _wide(value: TensorValue) -> TensorValue:
    return ops.cast(value, DType.float32)


def _in_pairs(input: TensorValue, weight: TensorValue) -> bool:
    """Whether the CPU multiplies pairs of bfloat16, which single channels do not have."""
    node = current_node()
    pairs = node.bank and node.bfloat16 != "" and input.dtype == DType.bfloat16
    return pairs and weight.shape[1] != 1


@map_to(torch.ops.torch_max_backend.fused_convolution.default, native16=True, bank=True)
def fused_convolution(
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    norm_weight: TensorValue | None,
    norm_bias: TensorValue | None,
    mean: TensorValue | None,
    variance: TensorValue | None,
    epsilon: float,
    residual: TensorValue | None,
    activation: str,
) -> TensorValue:
    """``activation(batch_norm(convolution(input, weight, bias)) + residual)``, each part but the
    convolution as far as it is given (``graph/passes/epilogue_fusion.py``)."""
    spatial, dtype = input.rank - 2, input.dtype
    stride, padding, dilation = (per_dimension(v, spatial) for v in (stride, padding, dilation))
    if _widens(input) and not _in_pairs(input, weight):
        input, weight = _wide(input), _wide(weight)
        residual = None if residual is None else _wide(residual)
    after = _After(norm_weight, norm_bias, mean, variance, epsilon, residual, activation)
    addresses = routine(input.dtype, input.device)
    assert addresses is not None, "the pass runs for the bank only"
    pads = [(p, p) for p in padding]
    input, weight, pads = _reached(input, weight, stride, pads, dilation)
    settings = (stride, pads, dilation, groups)
    return ops.cast(_by_products(input, weight, bias, *settings, addresses, after), dtype)


@dataclass
class _After:
    """What the kernel does to a convolution's sums."""

    norm_weight: TensorValue | None = None
    norm_bias: TensorValue | None = None
    mean: TensorValue | None = None
    variance: TensorValue | None = None
    epsilon: float = 0.0
    residual: TensorValue | None = None
    activation: str = "none"


def _by_products(
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: list[int],
    pads: list[tuple[int, int]],
    dilation: list[int],
    groups: int,
    addresses: list[TensorValue],
    after: _After,
) -> TensorValue:
    """The kernel that makes a matrix product of each convolution,
    ``mojo_kernels/convolution/forward.mojo``."""
    shape = expected().shape
    residual = after.residual
    sums = DType.float32 if input.dtype == DType.bfloat16 else input.dtype
    vectors = [
        nothing(sums) if v is None else ops.cast(v, sums)
        for v in (bias, after.norm_weight, after.norm_bias, after.mean, after.variance)
    ]
    # The sizes of the result say how far padding goes at the other end.
    settings = [*planar_settings(stride, [before for before, _ in pads], dilation), groups]
    settings.append(ACTIVATIONS.index(after.activation))
    result = ops.custom(
        "tmb_convolution",
        input.device,
        [
            planar(input),
            planar(weight),
            *vectors,
            nothing(input.dtype, 4) if residual is None else planar(residual),
            nothing(sums),
            *addresses,
            *numbers(settings),
            ops.constant(after.epsilon, DType.float64, DeviceRef.CPU()),
        ],
        [TensorType(input.dtype, planar_shape(shape), input.device)],
    )[0]
    return ops.reshape(result.tensor, shape)


def _of_volumes(
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: list[int],
    pads: list[tuple[int, int]],
    dilation: list[int],
    groups: int,
) -> TensorValue:
    """The convolution by ``mojo_kernels/convolution/volumes.mojo``."""
    settings = [*stride, *(before for before, _ in pads), *dilation, groups]
    (result,) = ops.custom(
        "tmb_convolution_3d",
        input.device,
        [input, weight, nothing(input.dtype) if bias is None else bias, *numbers(settings)],
        [TensorType(input.dtype, expected().shape, input.device)],
    )
    return result.tensor


def _transposed(
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> TensorValue:
    """The transposed convolution by ``mojo_kernels/convolution/transposed.mojo``."""
    shape = expected().shape
    settings = [*planar_settings(stride, padding, dilation), groups]
    result = ops.custom(
        "tmb_convolution_transposed",
        input.device,
        [
            planar(input),
            planar(weight),
            nothing(input.dtype) if bias is None else bias,
            *numbers(settings),
        ],
        [TensorType(input.dtype, planar_shape(shape), input.device)],
    )[0]
    return ops.reshape(result.tensor, shape)


def _convolved(
    input: TensorValue,
    weight: TensorValue,
    stride: list[int],
    pads: list[tuple[int, int]],
    dilation: list[int],
    groups: int,
) -> TensorValue:
    """The convolution of channels-first tensors, through MAX's channels-last kernels."""
    spatial = input.rank - 2
    with for_convolution():
        if spatial == 1:
            # MAX has no one-dimensional convolution: a height of 1.
            input, weight = ops.unsqueeze(input, 2), ops.unsqueeze(weight, 2)
            stride, pads, dilation = [1, *stride], [(0, 0), *pads], [1, *dilation]
        rank = input.rank
        last = ops.permute(input, [0, *range(2, rank), 1])
        kernel = ops.permute(weight, [*range(2, rank), 1, 0])
    convolve = ops.conv3d if rank == 5 else ops.conv2d
    flat = tuple(p for pair in pads for p in pair)
    result = convolve(last, kernel, tuple(stride), tuple(dilation), flat, groups)
    result = ops.permute(result, [0, rank - 1, *range(1, rank - 1)])
    return ops.squeeze(result, 2) if spatial == 1 else result


def _of_integers(
    input: TensorValue,
    weight: TensorValue,
    stride: list[int],
    pads: list[tuple[int, int]],
    dilation: list[int],
    groups: int,
) -> TensorValue:
    """The convolution by ``mojo_kernels/convolution/integers.mojo``."""
    spatial, shape = input.rank - 2, expected().shape
    before = [p for p, _ in pads]
    settings = [*three(stride, 1), *three(before, 0), *three(dilation, 1), groups]
    (result,) = ops.custom(
        "tmb_integer_convolution",
        input.device,
        [*(ops.reshape(v, lifted(v.shape, spatial)) for v in (input, weight)), *numbers(settings)],
        [TensorType(input.dtype, lifted(shape, spatial), input.device)],
    )
    return ops.reshape(result.tensor, shape)


def _spread(value: TensorValue, stride: list[int]) -> TensorValue:
    """Zeros between neighbours, ``stride - 1`` of them, in each spatial dimension."""
    for i, step in enumerate(stride):
        if step == 1:
            continue
        axis = i + 2
        shape = list(value.shape)
        pads = [0, 0] * (axis + 1) + [0, step - 1] + [0, 0] * (value.rank - axis - 1)
        value = ops.pad(ops.unsqueeze(value, axis + 1), pads)
        merged = shape[axis] * step
        value = ops.reshape(value, [*shape[:axis], merged, *shape[axis + 1 :]])
        value = _cut(value, axis, 0, step - 1)
    return value


def _turned(weight: TensorValue, groups: int) -> TensorValue:
    """The kernel of the plain convolution that a transposed one is, over its spread input."""
    for axis in range(2, weight.rank):
        # MAX slices of negative step come out unturned.
        back = list(reversed(range(int(weight.shape[axis]))))
        indices = ops.constant(np.array(back), DType.int64, DeviceRef.CPU())
        weight = ops.gather(weight, indices.to(weight.device), axis)
    inputs, outputs, *kernel = weight.shape
    grouped = ops.reshape(weight, [groups, inputs // groups, outputs, *kernel])
    order = [0, 2, 1, *range(3, grouped.rank)]
    return ops.reshape(ops.permute(grouped, order), [outputs * groups, inputs // groups, *kernel])


def _reached(
    input: TensorValue,
    weight: TensorValue,
    stride: list[int],
    pads: list[tuple[int, int]],
    dilation: list[int],
) -> tuple[TensorValue, TensorValue, list[tuple[int, int]]]:
    """The same convolution without the outer taps that meet padding alone, as most do where
    dilation exceeds a small image."""
    pads = list(pads)
    for i, ((before, after), step, apart) in enumerate(zip(pads, stride, dilation, strict=True)):
        size, taps = static(input.shape[i + 2]), static(weight.shape[i + 2])
        if size is None or taps is None:
            continue
        last = (before + size + after - apart * (taps - 1) - 1) // step * step - before
        met = [t for t in range(taps) if last + t * apart >= 0 and t * apart - before < size]
        if not met or len(met) == taps:
            continue
        first, rest = met[0], taps - 1 - met[-1]
        weight = _cut(weight, i + 2, first, rest)
        pads[i] = (before - first * apart, after - rest * apart)
    input, pads = _cropped(input, pads)
    return input, weight, pads


def _cropped(
    value: TensorValue, pads: list[tuple[int, int]]
) -> tuple[TensorValue, list[tuple[int, int]]]:
    """Negative padding is a cut."""
    for i, (before, after) in enumerate(pads):
        value = _cut(value, i + 2, max(0, -before), max(0, -after))
    return value, [(max(0, before), max(0, after)) for before, after in pads]


def _cut(value: TensorValue, axis: int, before: int, after: int) -> TensorValue:
    if before == after == 0:
        return value
    index = [slice(None)] * value.rank
    index[axis] = slice(before, -after if after else None)
    return value[tuple(index)]
