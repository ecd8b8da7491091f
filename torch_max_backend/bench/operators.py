"""Single operators, each a compiled graph of its own, beside eager PyTorch.

Run as ``python -m torch_max_backend.bench.operators [--seconds S] [PATTERN ...]``: prints Markdown,
milliseconds at a small and a large size in float32 with two threads, the overhead of a call (of
``x + 1`` on one element) subtracted from each side. All graphs are compiled as one module.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_max_backend.bench.steady import alternate

Case = tuple[Callable[..., Any], Sequence[Tensor]]

# Rows and columns of matrices, by size.
ROWS = {"small": (64, 128), "large": (2048, 1024)}
# Batch, channels, height and width of images.
IMAGES = {"small": (1, 16, 28, 28), "large": (8, 64, 56, 56)}


def cases(size: str) -> Iterator[tuple[str, Case]]:
    """The operators under test at one size, by name."""
    rows, columns = ROWS[size]
    x, y = torch.randn(rows, columns), torch.randn(rows, columns)
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
    yield "clamp", (lambda a: a.clamp(-1, 1), [x])
    yield "to bfloat16", (lambda a: a.to(torch.bfloat16), [x])
    integers = torch.randint(-100, 100, (rows, columns))
    yield "int64 add", (torch.add, [integers, integers])
    yield "int64 floor_divide", (lambda a: a // 7, [integers])

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
    yield "softmax", (lambda a: a.softmax(1), [x])
    yield "log_softmax", (lambda a: a.log_softmax(1), [x])
    yield "layer_norm", (lambda a, w, b: F.layer_norm(a, w.shape, w, b), [x, y[0], y[1]])
    yield "rms_norm", (lambda a, w: F.rms_norm(a, w.shape, w), [x, y[0]])
    target = torch.randint(0, columns, (rows,))
    yield "cross_entropy", (F.cross_entropy, [x, target])

    yield "sort", (lambda a: a.sort(1), [x])
    yield "topk 10", (lambda a: a.topk(10), [x])
    index = torch.randint(0, rows, (rows, columns))
    chosen = torch.randint(0, rows, (rows,))
    yield "gather", (lambda a, i: a.gather(0, i), [x, index])
    yield "index_select", (lambda a, i: a.index_select(0, i), [x, chosen])
    yield "embedding", (lambda i, a: F.embedding(i, a), [chosen, x])
    yield "scatter_add", (lambda a, i, b: a.scatter_add(0, i, b), [x, index, y])
    yield "index_add", (lambda a, i, b: a.index_add(0, i, b), [x, chosen, y])
    yield "index_put", (lambda a, i, b: a.index_put((i,), b), [x, torch.randperm(rows), y])
    yield "masked_fill", (lambda a, b: a.masked_fill(b > 0, 0.0), [x, y])
    yield "cat", (lambda a, b: torch.cat([a, b], 1), [x, y])
    yield "stack", (lambda a, b: torch.stack([a, b]), [x, y])
    yield "transpose copy", (lambda a: a.t().contiguous(), [x])
    yield "stepped slice", (lambda a: a[:, ::2].contiguous(), [x])
    yield "flip", (lambda a: a.flip(1), [x])
    yield "roll", (lambda a: a.roll(3, 1), [x])
    yield "tril", (torch.tril, [x])
    yield "pad", (lambda a: F.pad(a, (1, 2, 3, 4)), [x])

    width = 128 if size == "small" else 1024
    weight, vector = torch.randn(width, width), torch.randn(1, width)
    yield "matmul", (torch.mm, [torch.randn(width // 2, width), weight])
    yield "vector matrix", (torch.mm, [vector, weight])
    yield "linear", (F.linear, [vector, weight])
    heads = torch.randn(1, 8, 64 if size == "small" else 512, 64)
    yield "bmm", (torch.matmul, [heads, heads.transpose(2, 3).contiguous()])
    yield "attention", (lambda q: F.scaled_dot_product_attention(q, q, q), [heads])

    image = torch.randn(IMAGES[size])
    channels = image.shape[1]
    kernel = torch.randn(channels, channels, 3, 3)
    yield "conv2d", (lambda a, k: F.conv2d(a, k, padding=1), [image, kernel])
    up = torch.randn(channels, channels, 2, 2)
    yield "conv_transpose2d", (lambda a, k: F.conv_transpose2d(a, k, stride=2), [image, up])
    moments = [torch.rand(channels) for _ in range(4)]
    yield "batch_norm", (lambda a, *m: F.batch_norm(a, *m), [image, *moments])
    yield "group_norm", (lambda a, w, b: F.group_norm(a, 8, w, b), [image, *moments[:2]])
    yield "max_pool2d", (lambda a: F.max_pool2d(a, 2), [image])
    yield "avg_pool2d", (lambda a: F.avg_pool2d(a, 2), [image])
    yield "adaptive_avg_pool2d", (lambda a: F.adaptive_avg_pool2d(a, 7), [image])
    for mode in ("nearest", "bilinear", "bicubic"):
        yield (
            f"upsample {mode}",
            (lambda a, m=mode: F.interpolate(a, scale_factor=2, mode=m), [image]),
        )
    grid = torch.rand(image.shape[0], *image.shape[2:], 2) * 2 - 1
    yield "grid_sample", (lambda a, g: F.grid_sample(a, g, align_corners=False), [image, grid])
    yield "rand", (lambda a: torch.rand_like(a), [x])
    yield "randn", (lambda a: torch.randn_like(a), [x])
    yield "dropout", (lambda a: F.dropout(a, 0.1), [x])


def compiled(functions: dict[str, Case]) -> dict[str, Callable[[], Any]]:
    """Each function applied to its arguments, compiled together; those refused are left out."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_leaves

    import torch_max_backend.ops  # noqa: F401
    from torch_max_backend.compile.loading import load_models
    from torch_max_backend.compile.module import build_module, compile_module
    from torch_max_backend.errors import UnsupportedError
    from torch_max_backend.graph.decompositions import decomposition_table
    from torch_max_backend.graph.whole import whole
    from torch_max_backend.pipeline import prepare
    from torch_max_backend.runtime.executable import Executable

    table, traces = decomposition_table(), {}
    for name, (function, arguments) in functions.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaves = dispatch_functionalize(
                lambda *a, f=function: tree_leaves(f(*a)), FunctionalTensorMode()
            )
            with enable_python_dispatcher(), whole():
                module = make_fx(leaves, table, tracing_mode="fake")(*arguments)
            module.graph.eliminate_dead_code()
        try:
            traces[name] = prepare(module)
        except UnsupportedError as e:
            print(f"# {name}: {e}")
    built, libraries = build_module(list(traces.values()))
    models = load_models(compile_module(built, libraries, f"{len(traces)} operators"))
    calls: dict[str, Callable[[], Any]] = {}
    for (name, trace), model in zip(traces.items(), models, strict=True):
        run, arguments = Executable(model, trace.signature, trace.constants()), functions[name][1]
        calls[name] = lambda run=run, a=arguments: run(list(a))
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--seconds", type=float, default=0.6, help="for each operator and size")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    one = torch.zeros(1)
    functions: dict[str, Case] = {"overhead": (lambda a: a + 1, [one])}
    for size in ROWS:
        for name, case in cases(size):
            if any(fnmatch.fnmatchcase(name, p) for p in given.patterns):
                functions[f"{name} {size}"] = case
    calls = compiled(functions)

    def times(name: str) -> tuple[float, float]:
        function, arguments = functions[name]
        both = {"eager": lambda: function(*arguments), "max": calls[name]}
        with torch.no_grad():
            found = alternate(both, given.seconds, settle=0.02)
        return found["eager"], found["max"]

    idle = times("overhead")
    print(f"A call costs {idle[0] * 1e3:.1f} us in eager, {idle[1] * 1e3:.1f} us in max.\n")
    print("| operator | size | eager ms | max ms | max/eager |\n|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {size: [] for size in ROWS}
    for name in list(calls)[1:]:
        # A tenth of a microsecond: what is not above the overhead counts as nothing.
        ours, theirs = (
            max(t - i, 1e-4) for t, i in zip(times(name)[::-1], idle[::-1], strict=True)
        )
        operator, _, size = name.rpartition(" ")
        ratios[size].append(ours / theirs)
        print(
            f"| {operator} | {size} | {theirs:.3f} | {ours:.3f} | {ours / theirs:.2f} |", flush=True
        )
    for size, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"\n{size}: geometric mean {mean:.2f}, greatest {max(found):.2f} ({len(found)})")


if __name__ == "__main__":
    main()
