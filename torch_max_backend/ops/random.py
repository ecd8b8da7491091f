"""Random numbers, by ``mojo_kernels/random/numbers.mojo``: Philox of the call's seed, the node and
the element. Their distributions are torch's, the numbers are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.draws import DIGITS, Sizes, default_generator, draw_each, tensor
from torch_max_backend.ops.common.promotion import (
    broadcast,
    full,
    operands,
    opmath,
    to_dtype,
    working_dtype,
)
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


def _numbers(kind: str, a: float, b: float = 0.0, dtype: DType | None = None) -> TensorValue:
    """What torch's metadata says, filled with numbers of a distribution."""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, working_dtype(), spec.shape, spec.device)
    dtype = dtype or opmath(spec.dtype)
    numbers = (float(a), float(b), DIGITS.get(spec.dtype, DIGITS[dtype]))
    (result,) = draw_each("tmb_random", [tensor(dtype)], numbers=numbers, parameters={"kind": kind})
    return to_dtype(result, working_dtype())


# What eager torch raises for is refused.


def _in_range(fits: Callable[..., bool], reason: str, *numbers: Any) -> Refusal | None:
    if any(isinstance(n, torch.SymFloat) for n in numbers):
        return Refusal("a parameter that changes from call to call")
    return None if fits(*numbers) else Refusal(reason)


def _floats(
    self: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> Refusal | None:
    kind = dtype or (torch.get_default_dtype() if self is None else self.dtype)
    if not kind.is_floating_point:
        return Refusal(f"{kind} is not a floating-point dtype")
    return default_generator(generator)


@map_to(
    aten.rand.default, aten.rand.generator, supports=_floats, kernels="random.numbers", random=True
)
def rand(
    size: Sizes,
    *,
    generator: Any = None,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """rand(SymInt[] size, *, ScalarType? dtype=None, Device? device=None) -> Tensor"""
    return _numbers("uniform", 0, 1)


@map_to(
    aten.rand_like.default,
    aten.rand_like.generator,
    supports=_floats,
    kernels="random.numbers",
    random=True,
    native16=True,
)
def rand_like(
    self: TensorValue,
    *,
    generator: Any = None,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """rand_like(Tensor self, *, ScalarType? dtype=None, Device? device=None) -> Tensor"""
    return to_dtype(_numbers("uniform", 0, 1), expected().dtype)


@map_to(
    aten.randn.default,
    aten.randn.generator,
    supports=_floats,
    kernels="random.numbers",
    random=True,
)
def randn(
    size: Sizes,
    *,
    generator: Any = None,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randn(SymInt[] size, *, ScalarType? dtype=None, Device? device=None) -> Tensor"""
    return _numbers("normal", 0, 1)


@map_to(
    aten.randn_like.default,
    aten.randn_like.generator,
    supports=_floats,
    kernels="random.numbers",
    random=True,
    native16=True,
)
def randn_like(
    self: TensorValue,
    *,
    generator: Any = None,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randn_like(Tensor self, *, ScalarType? dtype=None, Device? device=None) -> Tensor"""
    return to_dtype(_numbers("normal", 0, 1), expected().dtype)


def _uniform(
    self: torch.Tensor, from_: float, to: float, generator: torch.Generator | None
) -> Refusal | None:
    reason = "uniform_ expects from <= to and a finite difference"
    fits = lambda a, b: a <= b and math.isfinite(b - a)  # noqa: E731
    return _floats(self, generator=generator) or _in_range(fits, reason, from_, to)


@map_to(aten.uniform.default, supports=_uniform, kernels="random.numbers", random=True)
def uniform(
    self: TensorValue, from_: float = 0.0, to: float = 1.0, *, generator: Any = None
) -> TensorValue:
    """uniform(Tensor self, float from=0., float to=1.) -> Tensor"""
    return _numbers("uniform", from_, to - from_)


def _normal(
    self: torch.Tensor | None = None,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> Refusal | None:
    outside = _in_range(lambda _, s: s >= 0, "normal expects std >= 0.0", mean, std)
    return _floats(self, dtype, generator) or outside


@map_to(aten.normal.float_float, supports=_normal, kernels="random.numbers", random=True)
def normal_sized(
    mean: float,
    std: float,
    size: Sizes,
    *,
    generator: Any = None,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """normal.float_float(float mean, float std, SymInt[] size) -> Tensor"""
    return _numbers("normal", mean, std)


@map_to(aten.normal_functional.default, supports=_normal, kernels="random.numbers", random=True)
def normal_functional(
    self: TensorValue, mean: float = 0.0, std: float = 1.0, *, generator: Any = None
) -> TensorValue:
    """normal_functional(Tensor self, float mean=0., float std=1.) -> Tensor"""
    return _numbers("normal", mean, std)


def _normal_of_tensors(
    mean: torch.Tensor | float, std: torch.Tensor | float, generator: torch.Generator | None
) -> Refusal | None:
    for given in (mean, std):
        if isinstance(given, torch.Tensor):
            refused = _floats(given, generator=generator)
        else:
            refused = _in_range(lambda _: True, "", given)
        if refused is not None:
            return refused
    if isinstance(std, torch.Tensor):
        return None
    return _in_range(lambda s: s >= 0, "normal expects std >= 0.0", std)


@map_to(
    aten.normal.Tensor_float, supports=_normal_of_tensors, kernels="random.numbers", random=True
)
def normal_of_mean(mean: TensorValue, std: float = 1.0, *, generator: Any = None) -> TensorValue:
    """normal.Tensor_float(Tensor mean, float std=1.) -> Tensor"""
    return _moved(_numbers("normal", 0, std), mean)


@map_to(
    aten.normal.float_Tensor, supports=_normal_of_tensors, kernels="random.numbers", random=True
)
def normal_of_std(mean: float, std: TensorValue, *, generator: Any = None) -> TensorValue:
    """normal.float_Tensor(float mean, Tensor std) -> Tensor"""
    return _moved(_given("normal", std), mean)


@map_to(
    aten.normal.Tensor_Tensor, supports=_normal_of_tensors, kernels="random.numbers", random=True
)
def normal_of_both(mean: TensorValue, std: TensorValue, *, generator: Any = None) -> TensorValue:
    """normal.Tensor_Tensor(Tensor mean, Tensor std) -> Tensor"""
    return _moved(_given("normal", std), mean)


def _moved(numbers: TensorValue, mean: TensorValue | float) -> TensorValue:
    (by,) = operands(numbers.dtype, mean)
    return ops.add(numbers, by)


def _given(kind: str, parameter: TensorValue) -> TensorValue:
    """A number for each element of a parameter that is broadcast to the result."""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, working_dtype(), spec.shape, spec.device)
    wide = DType.float64 if parameter.dtype == DType.float64 else DType.float32
    # Hits are 0 and 1, in any dtype; normal numbers are drawn in the dtype of the result.
    drawn = working_dtype() if kind == "bernoulli" else opmath(spec.dtype)
    (each,) = operands(wide, parameter)
    each = broadcast(each, spec.shape)
    (result,) = draw_each("tmb_random_given", [tensor(drawn)], [each], parameters={"kind": kind})
    return to_dtype(result, working_dtype())


def _exponential(
    self: torch.Tensor, lambd: float, generator: torch.Generator | None
) -> Refusal | None:
    outside = _in_range(lambda r: r > 0, "exponential_ expects lambda > 0.0", lambd)
    return _floats(self, generator=generator) or outside


@map_to(aten.exponential.default, supports=_exponential, kernels="random.numbers", random=True)
def exponential(self: TensorValue, lambd: float = 1.0, *, generator: Any = None) -> TensorValue:
    """exponential(Tensor self, float lambd=1.) -> Tensor"""
    return _numbers("exponential", 1 / lambd)


def _cauchy(
    self: torch.Tensor, median: float, sigma: float, generator: torch.Generator | None
) -> Refusal | None:
    reason = "cauchy_ expects sigma > 0.0"
    outside = _in_range(lambda _, s: s > 0, reason, median, sigma)
    return _floats(self, generator=generator) or outside


@map_to(aten.cauchy.default, supports=_cauchy, kernels="random.numbers", random=True)
def cauchy(
    self: TensorValue, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None
) -> TensorValue:
    """cauchy(Tensor self, float median=0., float sigma=1.) -> Tensor"""
    return _numbers("cauchy", median, sigma)


def _log_normal(
    self: torch.Tensor, mean: float, std: float, generator: torch.Generator | None
) -> Refusal | None:
    outside = _in_range(lambda _, s: s > 0, "log_normal_ expects std > 0.0", mean, std)
    return _floats(self, generator=generator) or outside


@map_to(aten.log_normal.default, supports=_log_normal, kernels="random.numbers", random=True)
def log_normal(
    self: TensorValue, mean: float = 1.0, std: float = 2.0, *, generator: Any = None
) -> TensorValue:
    """log_normal(Tensor self, float mean=1., float std=2.) -> Tensor"""
    return ops.exp(_numbers("normal", mean, std))


def _geometric(p: float, generator: torch.Generator | None) -> Refusal | None:
    outside = _in_range(lambda q: 0 < q < 1, "geometric_ expects p to be in (0, 1)", p)
    return default_generator(generator) or outside


@map_to(aten.geometric.default, supports=_geometric, kernels="random.numbers", random=True)
def geometric(self: TensorValue, p: float, *, generator: Any = None) -> TensorValue:
    """geometric(Tensor self, float p) -> Tensor"""
    kind = expected().dtype
    return _numbers(
        "geometric", -1 / math.log1p(-p), dtype=opmath(kind) if kind.is_float() else DType.float64
    )


def _probability(p: float, generator: torch.Generator | None = None) -> Refusal | None:
    outside = _in_range(lambda q: 0 <= q <= 1, "p has to be between 0 and 1", p)
    return default_generator(generator) or outside


@map_to(aten.bernoulli.p, supports=_probability, kernels="random.numbers", random=True)
def bernoulli_p(self: TensorValue, p: float, *, generator: Any = None) -> TensorValue:
    """bernoulli.p(Tensor self, float p) -> Tensor"""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, working_dtype(), spec.shape, spec.device)
    return draw_each("tmb_bernoulli", [tensor(working_dtype())], numbers=[float(p)])[0]


def _probabilities(p: torch.Tensor, generator: torch.Generator | None) -> Refusal | None:
    return _floats(p, generator=generator)


@map_to(aten.bernoulli.Tensor, supports=_probabilities, kernels="random.numbers", random=True)
def bernoulli_tensor(self: TensorValue, p: TensorValue, *, generator: Any = None) -> TensorValue:
    """bernoulli.Tensor(Tensor self, Tensor p) -> Tensor"""
    return _given("bernoulli", p)


@map_to(aten.bernoulli.default, supports=_floats, kernels="random.numbers", random=True)
def bernoulli(self: TensorValue, *, generator: Any = None) -> TensorValue:
    """bernoulli(Tensor self) -> Tensor"""
    return _given("bernoulli", self)


def _dropout(input: torch.Tensor, p: float) -> Refusal | None:
    return _floats(input) or _probability(p)


@map_to(aten.native_dropout.default, supports=_dropout, kernels="random.numbers", random=True)
def native_dropout(
    input: TensorValue, p: float, train: bool | None
) -> tuple[TensorValue, TensorValue]:
    """native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)"""
    mask = expected(1)
    if train is False or is_empty(mask.shape):
        return input, full(True, DType.bool, mask.shape, mask.device)
    keep = 1.0 - p
    x = to_dtype(input, opmath(input.dtype))
    result, kept = draw_each(
        "tmb_dropout",
        [x.type, tensor(DType.bool, 1)],
        [x],
        [keep, 1 / keep if keep > 0 else 0.0],
    )
    return to_dtype(result, input.dtype), kept


def _rrelu(
    self: torch.Tensor, lower: float, upper: float, generator: torch.Generator | None
) -> Refusal | None:
    outside = _in_range(lambda a, b: a <= b, "rrelu expects lower <= upper", lower, upper)
    return _floats(self, generator=generator) or outside


@map_to(
    aten.rrelu_with_noise_functional.default, supports=_rrelu, kernels="random.numbers", random=True
)
def rrelu_with_noise(
    self: TensorValue,
    noise: TensorValue,
    lower: int | float,
    upper: int | float,
    training: bool,
    generator: Any = None,
) -> tuple[TensorValue, TensorValue]:
    """rrelu_with_noise_functional(Tensor self, Tensor noise, Scalar lower=0.125,
    Scalar upper=0.3333333333333333, bool training=False) -> (Tensor, Tensor noise_out)"""
    zero, one, middle = operands(self.dtype, 0, 1, (lower + upper) / 2)
    if not training:
        return ops.where(ops.greater(self, zero), self, self * middle), noise
    slopes = _numbers("uniform", lower, upper - lower)
    slopes = ops.where(ops.greater_equal(zero, self), slopes, one)
    return self * slopes, slopes
