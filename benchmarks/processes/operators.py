"""Single operators, each a compiled graph of its own, in one framework.

Run as ``python -m benchmarks.processes.operators FRAMEWORK SIZE``; FRAMEWORK is ``eager``,
``dynamo`` (``torch.compile`` with the backend that runs a graph as it is: what Dynamo takes),
``inductor`` or ``max``, SIZE ``small`` or ``large``. float32. Does what lines of JSON ask, and
answers each with one:

- ``{"prepare": NAME}``: compiles an operator; the answer names the ``passes`` it has, ``forward``
  and, where it has gradients, ``both``, or says why it ``failed``;
- ``{"time": PASS, "seconds": S}``: the median ``milliseconds`` of a call of the operator that was
  prepared last, over so many seconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.processes.settled import settle
from benchmarks.processes.worker import serve
from torch_max_backend.compat.control_flow import scan, while_loop

Case = tuple[Callable[..., Any], Sequence[Tensor]]

# Rows and columns of matrices, by size.
ROWS = {"small": (64, 128), "large": (2048, 1024)}
# Batch, channels, height and width of images.
IMAGES = {"small": (1, 16, 28, 28), "large": (8, 64, 56, 56)}


def cases(size: str) -> Iterator[tuple[str, Case]]:
    """The operators under test at one size, by name."""
    rows, columns = ROWS[size]
    x, y = torch.randn(rows, columns), torch.randn(rows, columns)
    yield from _elementwise(x, y)
    yield from _reductions(x, y)
    yield from _movement(x, y)
    yield from _products(size)
    yield from _images(torch.randn(IMAGES[size]))
    yield from _transforms(x, torch.randn(IMAGES[size]))
    yield from _geometry(rows)
    yield "rand", (lambda a: torch.rand_like(a), [x])
    yield "randn", (lambda a: torch.randn_like(a), [x])
    yield "dropout", (lambda a: F.dropout(a, 0.1), [x])

    yield "cond", (lambda a: torch.cond(a.sum() > 0, torch.sin, torch.cos, (a,)), [x])
    yield "while_loop", (_powers, [torch.randn(64, 64), torch.randn(64, 64) / 8])
    yield "scan", (_recurrent, [torch.randn(64), torch.randn(100, 64), torch.randn(64, 64) / 8])


def _elementwise(x: Tensor, y: Tensor) -> Iterator[tuple[str, Case]]:
    """Operators on each element."""
    positive = x.abs() + 0.1
    for name in (
        "exp", "log", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "sqrt", "rsqrt", "atan",
        "expm1", "log1p", "abs", "floor", "neg",
    ):  # fmt: skip
        yield name, (getattr(torch, name), [positive])
    yield "relu", (F.relu, [x])
    yield "gelu", (F.gelu, [x])
    yield "silu", (F.silu, [x])
    yield "add", (torch.add, [x, y])
    yield "add row", (torch.add, [x, y[0]])
    yield "mul", (torch.mul, [x, y])
    yield "div", (torch.div, [x, y])
    yield "pow", (torch.pow, [positive, y])
    yield "pow 2.5", (lambda a: a**2.5, [positive])
    yield "atan2", (torch.atan2, [x, y])
    yield "where", (lambda a, b: torch.where(a > 0, a, b), [x, y])
    yield "bfloat16 silu mul", (lambda a, b: F.silu(a) * b, [x.bfloat16(), y.bfloat16()])
    yield "clamp", (lambda a: a.clamp(-1, 1), [x])
    yield "to bfloat16", (lambda a: a.to(torch.bfloat16), [x])
    integers = torch.randint(-100, 100, x.shape)
    yield "int64 add", (torch.add, [integers, integers])
    yield "int64 floor_divide", (lambda a: a // 7, [integers])


def _reductions(x: Tensor, y: Tensor) -> Iterator[tuple[str, Case]]:
    """Sums and extremes of rows, and what is made of them."""
    yield "sum", (torch.sum, [x])
    yield "sum rows", (lambda a: a.sum(1), [x])
    yield "sum columns", (lambda a: a.sum(0), [x])
    yield "mean rows", (lambda a: a.mean(1), [x])
    yield "max rows", (lambda a: a.amax(1), [x])
    yield "argmax", (lambda a: a.argmax(1), [x])
    yield "var", (lambda a: a.var(1), [x])
    yield "norm", (lambda a: torch.linalg.vector_norm(a, dim=1), [x])
    yield "logsumexp", (lambda a: a.logsumexp(1), [x])
    yield "cumsum", (lambda a: a.cumsum(1), [x])
    yield "cumprod", (lambda a: a.cumprod(1), [y / 10 + 1])
    yield "cummax", (lambda a: a.cummax(1), [x])
    yield "logcumsumexp", (lambda a: a.logcumsumexp(1), [x])
    yield "softmax", (lambda a: a.softmax(1), [x])
    yield "log_softmax", (lambda a: a.log_softmax(1), [x])
    yield "bfloat16 softmax", (lambda a: a.softmax(1), [x.bfloat16()])
    yield "layer_norm", (lambda a, w, b: F.layer_norm(a, w.shape, w, b), [x, y[0], y[1]])
    yield "rms_norm", (lambda a, w: F.rms_norm(a, w.shape, w), [x, y[0]])
    target = torch.randint(0, x.shape[1], x.shape[:1])
    yield "cross_entropy", (F.cross_entropy, [x, target])


def _movement(x: Tensor, y: Tensor) -> Iterator[tuple[str, Case]]:
    """Operators that sort, pick, write and move elements."""
    rows = x.shape[0]
    yield "sort", (lambda a: a.sort(1), [x])
    yield "topk 10", (lambda a: a.topk(10), [x])
    index = torch.randint(0, rows, x.shape)
    chosen = torch.randint(0, rows, (rows,))
    yield "gather", (lambda a, i: a.gather(0, i), [x, index])
    column = torch.randint(0, x.shape[1], (rows, 1))
    yield "gather column", (lambda a, i: a.gather(1, i), [x, column])
    yield "index_select", (lambda a, i: a.index_select(0, i), [x, chosen])
    columns = torch.randint(0, x.shape[1], (x.shape[1] // 2,))
    yield "select columns", (lambda a, i: a.index_select(1, i), [x, columns])
    yield "embedding", (lambda i, a: F.embedding(i, a), [chosen, x])
    yield "scatter_add", (lambda a, i, b: a.scatter_add(0, i, b), [x, index, y])
    yield "index_add", (lambda a, i, b: a.index_add(0, i, b), [x, chosen, y])
    yield "index_put", (lambda a, i, b: a.index_put((i,), b), [x, torch.randperm(rows), y])
    yield "masked_fill", (lambda a, b: a.masked_fill(b > 0, 0.0), [x, y])
    yield "cat", (lambda a, b: torch.cat([a, b], 1), [x, y])
    yield "stack", (lambda a, b: torch.stack([a, b]), [x, y])
    yield "stack last", (lambda a, b: torch.stack([a, b], -1), [x, y])
    yield "unfold", (lambda a: a.unfold(1, 8, 4).contiguous(), [x])
    yield "transpose copy", (lambda a: a.t().contiguous(), [x])
    yield "stepped slice", (lambda a: a[:, ::2].contiguous(), [x])
    yield "flip", (lambda a: a.flip(1), [x])
    yield "roll", (lambda a: a.roll(3, 1), [x])
    yield "tril", (torch.tril, [x])
    yield "pad", (lambda a: F.pad(a, (1, 2, 3, 4)), [x])


def _products(size: str) -> Iterator[tuple[str, Case]]:
    """Matrix products and attention."""
    width = 128 if size == "small" else 1024
    weight, vector = torch.randn(width, width), torch.randn(1, width)
    yield "matmul", (torch.mm, [torch.randn(width // 2, width), weight])
    yield "vector matrix", (torch.mm, [vector, weight])
    yield "linear", (F.linear, [vector, weight])
    heads = torch.randn(1, 8, 64 if size == "small" else 512, 64)
    yield "bmm", (torch.matmul, [heads, heads.transpose(2, 3).contiguous()])
    yield "attention", (lambda q: F.scaled_dot_product_attention(q, q, q), [heads])


def _images(image: Tensor) -> Iterator[tuple[str, Case]]:
    """Convolution, normalization, pooling and resizing of images."""
    channels = image.shape[1]
    kernel = torch.randn(channels, channels, 3, 3)
    yield "conv2d", (lambda a, k: F.conv2d(a, k, padding=1), [image, kernel])
    up = torch.randn(channels, channels, 2, 2)
    yield "conv_transpose2d", (lambda a, k: F.conv_transpose2d(a, k, stride=2), [image, up])
    moments = [torch.rand(channels) for _ in range(4)]
    mean, variance = moments[2:]
    yield (
        "batch_norm",
        (lambda a, w, b: F.batch_norm(a, mean, variance, w, b), [image, *moments[:2]]),
    )
    yield "channels last", (lambda a: a.permute(0, 2, 3, 1).contiguous(), [image])
    yield "flip channels", (lambda a: a.flip(1), [image])
    yield "reflect pad", (lambda a: F.pad(a, (1, 1, 1, 1), mode="reflect"), [image])
    yield "group_norm", (lambda a, w, b: F.group_norm(a, 8, w, b), [image, *moments[:2]])
    yield "max_pool2d", (lambda a: F.max_pool2d(a, 2), [image])
    yield "avg_pool2d", (lambda a: F.avg_pool2d(a, 2), [image])
    yield "adaptive_avg_pool2d", (lambda a: F.adaptive_avg_pool2d(a, 7), [image])
    yield "adaptive_max_pool2d", (lambda a: F.adaptive_max_pool2d(a, 7), [image])
    for mode in ("nearest", "bilinear", "bicubic"):
        yield (
            f"upsample {mode}",
            (lambda a, m=mode: F.interpolate(a, scale_factor=2, mode=m), [image]),
        )
    grid = torch.rand(image.shape[0], *image.shape[2:], 2) * 2 - 1
    yield "grid_sample", (lambda a, g: F.grid_sample(a, g, align_corners=False), [image, grid])


def _transforms(x: Tensor, image: Tensor) -> Iterator[tuple[str, Case]]:
    """Fourier transforms and complex numbers, results as pairs."""
    pairs = x.view(*x.shape[:-1], -1, 2)
    size = image.shape[-2:]
    yield "rfft", (lambda a: torch.view_as_real(torch.fft.rfft(a)), [x])
    yield "irfft", (lambda a: torch.fft.irfft(torch.view_as_complex(a)), [pairs])
    yield "fft2", (lambda a: torch.view_as_real(torch.fft.fft2(a)), [image])
    yield "rfft2", (lambda a: torch.view_as_real(torch.fft.rfft2(a)), [image])
    half = torch.randn(*image.shape[:2], size[0], size[1] // 2 + 1, 2)
    yield "irfft2", (lambda a: torch.fft.irfft2(torch.view_as_complex(a), s=size), [half])
    queries = x.view(1, x.shape[0], -1, 32, 2)
    yield "complex rotary", (_rotated, [queries, torch.randn(x.shape[0], 1, 32, 2)])


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(angles))


def _geometry(rows: int) -> Iterator[tuple[str, Case]]:
    """Points, planes and their distances."""
    points = torch.randn(32 * rows, 3)
    yield "cross", (torch.linalg.cross, [points, torch.randn_like(points)])
    yield (
        "affine_grid",
        (lambda t: F.affine_grid(t, [4, 3, 64, rows], False), [torch.randn(4, 2, 3)]),
    )
    many = torch.randn(rows // 4, 32)
    yield "cdist", (torch.cdist, [many, torch.randn_like(many)])


def _powers(x: Tensor, weight: Tensor) -> Tensor:
    start = torch.zeros((), dtype=torch.int64)
    rounds = while_loop(
        lambda i, x: i < 100, lambda i, x: (i + 1, torch.tanh(x @ weight)), (start, x)
    )
    return rounds[1]


def _recurrent(state: Tensor, steps: Tensor, weight: Tensor) -> Tensor:
    def step(state: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(state @ weight + given)
        return state, state.clone()

    return scan(step, state, steps)[1]


# Calls before the timed ones, after the tenth of which programs are compiled in the background.
_UNTIMED = 15
# Seconds of one sample: a call of a few microseconds is not measured alone.
_SAMPLE = 2e-4
# Calls before those of a turn: threads wake up, and caches hold what they need.
_AWAKE = 5


def warm_up(call: Callable[[], Any]) -> None:
    """Calls until nothing is left to be compiled."""
    for _ in range(_UNTIMED):
        call()
    settle()
    for _ in range(_UNTIMED):
        call()


def milliseconds(call: Callable[[], Any], seconds: float) -> float:
    """The median time of a call."""
    for _ in range(_AWAKE):
        call()
    start = time.perf_counter()
    call()
    count = max(1, round(_SAMPLE / (time.perf_counter() - start)))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        for _ in range(count):
            call()
        found.append((time.perf_counter() - start) / count)
    return statistics.median(found) * 1e3


def differentiated(function: Callable[..., Any], arguments: Sequence[Tensor]) -> Any:
    """A call with the gradients of all that has some, or ``None``."""
    with torch.no_grad():
        result = function(*arguments)
    result = result[0] if isinstance(result, (tuple, list)) else result
    if not result.is_floating_point():
        return None
    given = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in arguments]
    wanted = [a for a in given if a.requires_grad]
    if not wanted:
        return None
    with torch.enable_grad():
        result = function(*given)
    result = result[0] if isinstance(result, (tuple, list)) else result
    if not result.requires_grad:
        return None
    ones = torch.ones_like(result)

    def both() -> Any:
        found = function(*given)
        found = found[0] if isinstance(found, (tuple, list)) else found
        return torch.autograd.grad(found, wanted, ones, allow_unused=True)

    return both


def prepared(framework: str, case: Case) -> dict[str, Callable[[], Any]]:
    """The calls of one operator by pass, compiled."""
    function, arguments = case
    torch.compiler.reset()
    if framework != "eager":
        from torch_max_backend import max_backend

        # Also what has no step is the package's: a graph of one operator is eager PyTorch's else.
        options = {"min_ops": 1} if framework == "max" else {}
        backend = {"max": max_backend, "dynamo": "eager"}.get(framework, framework)
        # Sizes stay as they are; to say `dynamic=False` would cost 3 us a call.
        function = torch.compile(function, backend=backend, options=options)

    calls: dict[str, Callable[[], Any]] = {"forward": lambda: function(*arguments)}
    with torch.no_grad():
        warm_up(calls["forward"])
    both = differentiated(function, arguments)
    if both is not None:
        warm_up(both)
        calls["both"] = both
    return calls


def main(framework: str, size: str) -> None:
    """The command line; see the top of this file."""
    torch.manual_seed(0)
    known = dict(cases(size))
    calls: dict[str, Callable[[], Any]] = {}

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        if "prepare" in asked:
            calls.clear()
            calls.update(prepared(framework, known[asked["prepare"]]))
            return {"passes": list(calls)}
        with torch.set_grad_enabled(asked["time"] == "both"):
            return {"milliseconds": milliseconds(calls[asked["time"]], asked["seconds"])}

    serve(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
