"""Random numbers."""

from __future__ import annotations

from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from tests.gpu.kernels.support import numbers

STREAM = (1, 2, 0)  # Seed and offset.


def random(x: TensorValue) -> list[TensorValue]:
    x = ops.reshape(x, [480])
    results = []
    digits, low = numbers(24, -3)
    double = TensorType(DType.float64, x.shape, x.device)
    for kind in ("uniform", "normal", "exponential", "geometric", "cauchy"):
        given = [*numbers(*STREAM, 0.5, 2.0), digits]
        for out in (x.type, double):
            results += ops.custom("tmb_random", x.device, given, [out], {"kind": kind})
    for kind in ("bernoulli", "normal"):
        given = [x, *numbers(*STREAM)]
        results += ops.custom("tmb_random_given", x.device, given, [x.type], {"kind": kind})
    results += ops.custom("tmb_bernoulli", x.device, [*numbers(*STREAM, 0.5)], [x.type])
    mask = TensorType(DType.bool, x.shape, x.device)
    given = [x, *numbers(*STREAM, 0.5, 2.0)]
    results += ops.custom("tmb_dropout", x.device, given, [x.type, mask])
    whole = TensorType(DType.int64, x.shape, x.device)
    results += ops.custom("tmb_randint", x.device, [*numbers(*STREAM), low, digits], [whole])
    return [r.tensor for r in results]


def sampling(x: TensorValue) -> list[TensorValue]:
    rows = ops.reshape(x, [6, 80])
    chosen = TensorType(DType.int64, [6, 3], x.device)
    scratch = [TensorType(d, rows.shape, x.device) for d in (DType.float64, DType.int64)]
    given = [rows, *numbers(*STREAM)]
    results = ops.custom("tmb_multinomial", x.device, given, [chosen, *scratch])[:1]
    results += ops.custom("tmb_multinomial_replaced", x.device, given, [chosen, scratch[0]])[:1]
    line = ops.reshape(x, [480])
    results += ops.custom("tmb_poisson", x.device, [line, *numbers(*STREAM)], [line.type])
    results += ops.custom("tmb_binomial", x.device, [line, line, *numbers(*STREAM)], [line.type])
    order = TensorType(DType.int64, [100], x.device)
    results += ops.custom("tmb_randperm", x.device, [*numbers(*STREAM, 1000)], [order])
    return [r.tensor for r in results]


LIBRARIES = ("random.multinomial", "random.integers", "random.numbers", "random.sampling")
BUILDERS = (random, sampling)
