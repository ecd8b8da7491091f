"""What a patched kernel is worth, as a table: times, speed-up, tokens a second, differences.

Each row runs a protein model (ESM-2, random weights) in eager PyTorch and with some of its modules
patched, in turns, on proteins of several lengths, and compares the results. Usage:

    python examples/custom_kernel_evidence.py --layers 4 --width 320 --lengths 64 256 --batch 1

``CASES`` holds the patches. To measure a kernel of your own, add a row: the class of the modules it
is for, and a function of the module and its arguments.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import EsmConfig, EsmModel
from transformers.models.esm.modeling_esm import EsmIntermediate, EsmLayer, EsmSelfAttention

from torch_max_backend import compiled, mojo_op, packed, patch
from torch_max_backend.process.processor import processor_name

bias_gelu = mojo_op(
    "evidence::bias_gelu(Tensor x, Tensor bias) -> Tensor",
    """
    from extensibility import InputTensor, OutputTensor, foreach, register
    from layout import Coord
    from max.gpu.host import DeviceContext
    from std.math import erf


    @register("evidence_bias_gelu")
    struct BiasGelu:
        @staticmethod
        def execute[target: StaticString](
            output: OutputTensor,
            x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
            bias: InputTensor[dtype=output.dtype, rank=output.rank, ...],
            ctx: DeviceContext,
        ) raises:
            @always_inline
            def body[width: Int](at: Coord[...]) {var x, var bias} -> SIMD[output.dtype, width]:
                var v = (x.load[width](at) + bias.load[width](at)).cast[DType.float32]()
                return (v * 0.5 * (1 + erf(v * 0.7071067811865476))).cast[output.dtype]()

            foreach[target=target](body, output, ctx)
    """,
    fake=lambda x, bias: torch.empty_like(x),
)


def intermediate(module: EsmIntermediate, x: torch.Tensor) -> torch.Tensor:
    """EsmIntermediate with a kernel in Mojo for its bias and GELU."""
    product = nn.functional.linear(x, module.dense.weight)
    return bias_gelu(product, module.dense.bias.expand_as(product))


# By name: what is patched, and how (docs/patching.md).
CASES: Mapping[str, Callable[[], Mapping[Any, Any] | None]] = {
    "innermost blocks compiled": lambda: None,
    "layers compiled, any length": lambda: {EsmLayer: compiled(dynamic=True)},
    "packed queries, keys, values": lambda: {EsmSelfAttention: packed("query", "key", "value")},
    "Mojo kernel for bias + GELU": lambda: {EsmIntermediate: intermediate},
}


def milliseconds(run: Callable[[], Any], seconds: float) -> float:
    """The median of calls for so many seconds, three at least."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


@torch.no_grad()
def evidence(arguments: argparse.Namespace) -> list[str]:
    """The rows of the table."""
    torch.manual_seed(0)
    config = EsmConfig(
        vocab_size=33, hidden_size=arguments.width, intermediate_size=4 * arguments.width,
        num_hidden_layers=arguments.layers, num_attention_heads=arguments.width // 16,
        position_embedding_type="rotary", pad_token_id=1, mask_token_id=32,
    )  # fmt: skip
    model = EsmModel(config, add_pooling_layer=False).eval()
    columns = ("case", "length", "baseline ms", "patched ms", "speed-up", "tokens/s")
    rows = [_row(*columns, "largest difference", "mean difference"), _row(*["---"] * 8)]
    print(*rows, sep="\n")
    for name, rewrites in CASES.items():
        for length in arguments.lengths:
            tokens = torch.randint(4, 24, (arguments.batch, length))
            call = partial(model, tokens)
            expected = call().last_hidden_state
            given, times = rewrites(), ([], [])
            for _ in range(3):  # in turns: a machine may slow down
                times[0].append(milliseconds(call, arguments.seconds / 3))
                with patch(model, given):
                    difference = (call().last_hidden_state - expected).abs()
                    call()
                    times[1].append(milliseconds(call, arguments.seconds / 3))
            base, ours = map(statistics.median, times)
            figures = (f"{base:.2f}", f"{ours:.2f}", f"{base / ours:.2f}")
            figures += (f"{1e3 * tokens.numel() / ours:,.0f}",)
            figures += (f"{difference.max():.1e}", f"{difference.mean():.1e}")
            rows.append(_row(name, length, *figures))
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for each number")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    arguments = parser.parse_args()
    packages = ("torch", "transformers", "max", "torch-max-backend")
    rows = [
        f"ESM-2, {arguments.layers} layers, {arguments.width} wide, float32, batch "
        f"{arguments.batch}; {processor_name()}, {torch.get_num_threads()} threads; "
        + ", ".join(f"{p} {version(p)}" for p in packages),
        "",
        *evidence(arguments),
    ]
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(rows) + "\n")
    print("\n" + rows[0])


if __name__ == "__main__":
    main()
