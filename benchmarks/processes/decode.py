"""One process, one framework: a token of a Llama with a static cache.

Run as ``python -m benchmarks.processes.decode FRAMEWORK DTYPE [SECONDS]``; FRAMEWORK is
``eager``, ``inductor``, ``steps`` or ``max`` (MAX's engine), DTYPE ``float32``, ``bfloat16``, or
``int8``, ``int4`` (in groups of 32) or ``float8`` (torchao's weight-only quantization of the
bfloat16 model). Prints one line of JSON: seconds of the first call, median milliseconds of a call,
and the largest difference from eager relative to eager's largest value.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch

from benchmarks.processes.alone import compiled, decoding


def llama(dtype: str) -> torch.nn.Module:
    """A Llama of 8 layers, 1024 wide, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
    )
    model = LlamaForCausalLM(config).eval()
    if dtype != "float32":
        model = model.bfloat16()
    if dtype not in ("float32", "bfloat16"):
        _quantize(model, dtype)
    return model


def _quantize(model: torch.nn.Module, dtype: str) -> None:
    from torchao import quantization
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

    configs = {
        "int8": quantization.Int8WeightOnlyConfig(),
        "int4": PrototypeInt4WeightOnlyConfig(group_size=32),
        "float8": quantization.Float8WeightOnlyConfig(),
    }
    quantization.quantize_(model, configs[dtype])


def main(framework: str, dtype: str, seconds: str = "4") -> None:
    """The command line; see the top of this file."""
    torch.manual_seed(0)
    model = llama(dtype)
    with torch.no_grad():
        step, inputs = decoding(model)
        token = inputs["input_ids"]
        expected = step(token).float()
        call = compiled(step, framework)
        start = time.perf_counter()
        actual = call(token).float()
        first = time.perf_counter() - start
        for _ in range(15):
            call(token)
        times: list[float] = []
        end = time.perf_counter() + float(seconds)
        while (start := time.perf_counter()) < end:
            call(token)
            times.append(time.perf_counter() - start)
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    report = {"first_s": first, "median_ms": statistics.median(times) * 1e3, "error": error}
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
