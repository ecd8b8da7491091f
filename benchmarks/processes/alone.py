"""One process, one framework, one case: the first call, and the calls after it.

Run as ``python -m benchmarks.processes.alone CASE FRAMEWORK [SECONDS [THREADS]]``; FRAMEWORK is
``eager``, ``inductor``, ``steps``, ``max`` (MAX's engine) or ``openvino`` if it is installed. CASE
is a key of ``CASES``, maybe with an ending of ``case`` (``bert_bf16``). Prints one line of JSON:
seconds of wall and CPU time of the first call (children included), median and least milliseconds of
a call, peak memory in bytes, and the largest difference from eager relative to eager's largest
value.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from benchmarks.processes.first_call import cpu_seconds, peak_bytes
from benchmarks.processes.models import MODELS

Case = tuple[Callable[..., Any], Mapping[str, Any]]

Maker = Callable[[torch.dtype], Case]


def _in(dtype: torch.dtype, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs with their real numbers in ``dtype``."""
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}


def _of(name: str, batch: int, length: int) -> Maker:
    def make(dtype: torch.dtype) -> Case:
        case = MODELS[name]
        model = case.build().to(dtype)
        inputs = _in(dtype, case.inputs(batch, length))
        return lambda **inputs: case.result(model(**inputs)), inputs

    return make


def _image(name: str, batch: int, library: str = "torchvision") -> Maker:
    def make(dtype: torch.dtype) -> Case:
        if library == "timm":
            import timm

            model = timm.create_model(name, pretrained=False)
        else:
            import torchvision

            model = getattr(torchvision.models, name)(weights=None)
        model = model.eval().to(dtype)
        return lambda x: model(x), {"x": torch.randn(batch, 3, 224, 224).to(dtype)}

    return make


def _mlp(dtype: torch.dtype) -> Case:
    layers = [part for _ in range(4) for part in (nn.Linear(256, 256), nn.GELU())]
    model = nn.Sequential(*layers).eval().to(dtype)
    return lambda x: model(x), {"x": torch.randn(64, 256).to(dtype)}


def decoding(model: nn.Module) -> Case:
    """One token of a language model with a static cache of 512 that holds 128. Each call goes back
    to that position: the cache would be full after 384 calls."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=512)
    model(input_ids=torch.randint(4, 32000, (1, 128)), past_key_values=cache)

    def step(input_ids: torch.Tensor) -> torch.Tensor:
        for layer in cache.layers:
            layer.cumulative_length.fill_(128)
        return model(input_ids=input_ids, past_key_values=cache).logits

    return step, {"input_ids": torch.tensor([[7]])}


def _decode(dtype: torch.dtype) -> Case:
    return decoding(MODELS["llama"].build().to(dtype))


def _unet(dtype: torch.dtype) -> Case:
    from benchmarks.processes.trainable import UNet

    model = UNet().eval().to(dtype)
    return lambda x: model(x), {"x": torch.randn(1, 1, 128, 128).to(dtype)}


def _experts(dtype: torch.dtype) -> Case:
    from benchmarks.processes.routed import BATCHES, TOKENS, WIDTH, Routed

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    model = Routed().eval().to(dtype)
    return lambda x: model(x), {"x": torch.randn(BATCHES, TOKENS, WIDTH).to(dtype)}


def _add(dtype: torch.dtype) -> Case:
    return lambda x, y: x + y, {name: torch.randn(8, 8).to(dtype) for name in "xy"}


CASES: Mapping[str, Maker] = {
    "add8": _add,
    "mlp_64x256": _mlp,
    "gpt2_16": _of("gpt2", 1, 16),
    "gpt2_128": _of("gpt2", 1, 128),
    "bert": _of("bert", 1, 128),
    "bert_b8": _of("bert", 8, 128),
    "llama_prefill": _of("llama", 1, 128),
    "llama_decode": _decode,
    "esm": _of("esm", 1, 128),
    "esm_b8": _of("esm", 8, 128),
    "vit": _of("vit", 1, 0),
    "resnet18": _image("resnet18", 1),
    "resnet18_b8": _image("resnet18", 8),
    "resnet50": _image("resnet50", 1),
    "resnet50_b4": _image("resnet50", 4),
    "mobilenet_v3_small": _image("mobilenet_v3_small", 1),
    "mobilenet_v3_small_b8": _image("mobilenet_v3_small", 8),
    "efficientnet_b0": _image("efficientnet_b0", 1),
    "convnext_atto": _image("convnext_atto", 1, "timm"),
    "unet": _unet,
    "experts": _experts,
}

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtypes a case's name may end in; without one it runs in float32."""


def case(name: str) -> Case:
    """What a name means: a key of ``CASES``, in 16 bits with ``_bf16`` or ``_fp16`` at its end, in
    float32 whose products may be rounded with ``_medium``."""
    base, _, ending = name.rpartition("_")
    if ending == "medium":
        torch.set_float32_matmul_precision("medium")
        return CASES[base](torch.float32)
    return CASES[base](DTYPES[ending]) if ending in DTYPES else CASES[name](torch.float32)


def compiled(function: Callable[..., Any], framework: str) -> Callable[..., Any]:
    """The function under a framework."""
    if framework == "eager":
        return function
    if framework == "openvino":
        importlib.import_module("openvino.torch")
    if framework in ("inductor", "openvino"):
        return torch.compile(function, backend=framework)
    from torch_max_backend import max_backend

    options = {"engine": framework, "fallback": "error"}
    return torch.compile(function, backend=max_backend, options=options)


def main(name: str, framework: str, seconds: str = "3", threads: str = "0") -> None:
    """The command line; see the top of this file."""
    if int(threads):
        torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    with torch.no_grad():
        function, inputs = case(name)
        expected = function(**inputs)
        call = compiled(function, framework)
        wall, cpu = time.perf_counter(), cpu_seconds()
        actual = call(**inputs)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        error = ((actual - expected).abs().max() / expected.abs().max()).item()
        for _ in range(5):
            call(**inputs)
        times: list[float] = []
        end = time.perf_counter() + float(seconds)
        while (start := time.perf_counter()) < end or len(times) < 10:
            call(**inputs)
            times.append(time.perf_counter() - start)
    report = {
        "wall_s": wall,
        "cpu_s": cpu,
        "median_ms": statistics.median(times) * 1e3,
        "least_ms": min(times) * 1e3,
        "error": error,
        "peak_bytes": peak_bytes(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
