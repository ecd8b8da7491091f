"""Programs run beside torch: tensors with canaries, numbers with special ones, what torch gives."""

from __future__ import annotations

import math

import torch

from torch_max_backend.engines.steps.program_libraries import prepare
from torch_max_backend.engines.steps.program_rows import encode
from torch_max_backend.engines.steps.runner import runner

CANARY = 64
_ONE = {
    "negative": torch.neg, "abs": torch.abs, "relu": torch.relu, "floor": torch.floor,
    "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "is_nan": torch.isnan, "is_inf": torch.isinf, "sign_bit": torch.signbit,
    "not": torch.bitwise_not, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log1p": torch.log1p, "log2": torch.log2, "log10": torch.log10,
    "sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu, "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    "erf": torch.erf, "erfc": torch.erfc, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "sinc": torch.sinc,
    "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "asinh": torch.asinh,
    "acosh": torch.acosh, "atanh": torch.atanh, "sinh": torch.sinh, "cosh": torch.cosh,
    "mantissa": lambda x: torch.frexp(x)[0], "exponent": lambda x: torch.frexp(x)[1],
}  # fmt: skip


def _pair(a, b):
    """Two numbers as one integer."""
    kind = torch.uint64 if a.itemsize == 4 else torch.uint32
    return torch.stack([a, b], -1).view(kind).squeeze(-1)


_TWO = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "max": torch.maximum, "min": torch.minimum, "equal": torch.eq, "not_equal": torch.ne,
    "greater": torch.gt, "greater_equal": torch.ge, "and": torch.bitwise_and,
    "or": torch.bitwise_or, "xor": torch.bitwise_xor, "pow": torch.pow, "atan2": torch.atan2,
    "hypot": torch.hypot, "copysign": torch.copysign, "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2, "mod": torch.remainder, "fmod": torch.fmod,
    "floor_div": torch.floor_divide, "next": torch.nextafter,
    "left": torch.bitwise_left_shift, "right": torch.bitwise_right_shift, "gcd": torch.gcd,
    "lcm": torch.lcm, "pair": _pair,
}  # fmt: skip


def run(program, sizes, inputs, outputs, **options):
    """Run a program on tensors that are as large as the space, and those of its reductions."""
    row = encoded(program, sizes, inputs, outputs, **options)
    execute(row, inputs, outputs)
    return row


def encoded(program, sizes, inputs, outputs, **options):
    prepare([program])
    strides = [x.stride() for x in inputs], [y.stride() for y in outputs]
    return encode(program, sizes, *strides, **options)


def execute(row, inputs, outputs, function=None):
    """Run a row, with another function than the interpreter if there is one."""
    words = torch.tensor(list(row.words), dtype=torch.int64)
    for word, tensor in zip([*row.inputs, *row.outputs], [*inputs, *outputs], strict=True):
        words[word] = tensor.data_ptr()
    assert words[1] == len(words)
    if function is not None:
        words[0] = function
    context = torch.zeros(5, dtype=torch.int64)
    assert runner()(words.data_ptr(), 1, context.data_ptr()) == -1


def expected(program, sizes, inputs, reduced=0):
    """What torch's operators give."""
    values = [x.expand(sizes) for x in inputs]
    for instruction in program.instructions:
        operands = [values[o] for o in instruction.operands]
        dtype = getattr(torch, instruction.dtype)
        name = instruction.name
        if name == "constant":
            value = torch.tensor(instruction.constant, dtype=dtype).expand(sizes)
        elif name == "cast":
            value = operands[0].to(dtype)
        elif name == "select":
            value = torch.where(*operands)
        else:
            value = (
                {**_ONE, **_TWO}[name](*operands) if len(operands) == 2 else _ONE[name](*operands)
            )
        values.append(value.to(dtype))
    results = [values[v] for v in program.outputs]
    dims = tuple(range(len(sizes) - reduced, len(sizes)))
    for kind, v in program.reductions:
        x = values[v]
        flat = x.reshape(*sizes[: len(sizes) - reduced], math.prod(sizes[len(sizes) - reduced :]))
        if kind == "sum":
            wide = x.dtype if not x.dtype.is_floating_point else torch.float64
            results.append(x.sum(dims, dtype=wide).to(x.dtype))
        elif kind == "prod":
            wide = x.dtype if not x.dtype.is_floating_point else torch.float64
            results.append(flat.prod(-1, dtype=wide).to(x.dtype))
        elif x.dtype == torch.bool:
            results.append(flat.any(-1) if kind == "max" else flat.all(-1))
        else:
            results.append(flat.amax(-1) if kind == "max" else flat.amin(-1))
    return results


class Guarded:
    """Tensors with canaries around, which no program may change."""

    def __init__(self):
        self.buffers = []

    def empty(self, sizes, dtype, order=None, gaps=False):
        """A tensor whose dims lie in a given order in memory, outermost first."""
        order = order or list(range(len(sizes)))
        strides, step = [0] * len(sizes), 2 if gaps else 1
        for i in reversed(order):
            strides[i] = step
            step *= max(1, sizes[i])
        size = (
            1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
            if math.prod(sizes)
            else 0
        )
        buffer = torch.empty(size + 2 * CANARY, dtype=dtype)
        raw = buffer.view(torch.uint8)
        raw.fill_(0 if dtype == torch.bool else 0x5B)
        made = buffer.as_strided(sizes, strides, CANARY)
        inside = torch.zeros(size + 2 * CANARY, dtype=torch.bool)
        inside.as_strided(sizes, strides, CANARY).fill_(True)
        self.buffers.append((buffer, inside, buffer.clone()))
        return made

    def check(self):
        for buffer, inside, before in self.buffers:
            a = buffer.view(torch.uint8).view(len(buffer), -1)[~inside]
            assert torch.equal(a, before.view(torch.uint8).view(len(buffer), -1)[~inside])


def filled(dtype, sizes, seed=0, special=True, small=False):
    """Numbers of a dtype, special ones among them."""
    made = torch.Generator().manual_seed(seed)
    count = max(1, math.prod(sizes))
    if dtype == torch.bool:
        return (torch.rand(count, generator=made) < 0.5)[: math.prod(sizes)].reshape(sizes)
    if dtype.is_floating_point:
        x = (torch.randn(count, generator=made, dtype=torch.float64) * (1 if small else 3)).to(
            dtype
        )
        if special:
            tiny = torch.finfo(dtype).smallest_normal
            values = [
                math.nan,
                math.inf,
                -math.inf,
                0.0,
                -0.0,
                tiny / 8,
                -tiny / 4,
                0.5,
                1.5,
                2.5,
                -0.5,
                1.0,
                -1.0,
                torch.finfo(dtype).max,
                torch.finfo(dtype).min,
                tiny,
            ]
            places = torch.randint(count, (len(values) if count > 40 else 2,), generator=made)
            chosen = torch.tensor(values, dtype=torch.float64).to(dtype)
            x[places] = chosen[torch.randperm(len(values), generator=made)[: len(places)]]
    else:
        info = torch.iinfo(dtype)
        low, high = (
            (max(info.min, -9), 9) if small else (max(info.min, -1 << 40), min(info.max, 1 << 40))
        )
        x = torch.randint(low, high, (count,), generator=made, dtype=dtype)
        if special:
            x[:2] = torch.tensor([info.min, info.max], dtype=dtype)[: len(x[:2])]
    return x[: math.prod(sizes)].reshape(sizes)


def assert_close(actual, wanted, exact, dtype=None):
    if exact:
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0, equal_nan=True)
    else:
        rtol = {torch.float64: 1e-13, torch.float32: 3e-6}.get(actual.dtype, 0.02)
        atol = {torch.float64: 1e-13, torch.float32: 1e-6}.get(actual.dtype, 2e-3)
        torch.testing.assert_close(actual, wanted, rtol=rtol, atol=atol, equal_nan=True)
