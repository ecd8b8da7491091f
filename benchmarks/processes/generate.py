"""One process, one framework: the text that a Llama generates with a static cache.

Run as ``python -m benchmarks.processes.generate FRAMEWORK DTYPE [CALLS]``; FRAMEWORK is
``eager``, ``inductor`` or ``max`` (this package as it is by default), DTYPE one of those of
``bench.decode``, whose model it is. The prompt has 64 tokens, each call generates 128. Prints one
line of JSON: seconds of the imports, of building the model and of the first call of ``generate``
(compiles included), the tokens a second of the median of CALLS (3) later calls, and whether each of
them generated the first one's tokens.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable

PROMPT, NEW_TOKENS = 64, 128


def generating(dtype: str, framework: str) -> Callable[[], list[int]]:
    """What generates a text, whose model is compiled by its first call."""
    import torch

    from benchmarks.processes.alone import compiled
    from benchmarks.processes.decode import llama

    torch.manual_seed(0)
    model = llama(dtype)
    # No token ends the text before its time.
    model.generation_config.eos_token_id = None
    model.forward = compiled(model.forward, framework)
    prompt = torch.randint(4, model.config.vocab_size, (1, PROMPT))

    def generate() -> list[int]:
        text = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            cache_implementation="static",
        )
        return text[0].tolist()

    return generate


def main(framework: str, dtype: str, calls: str = "3") -> None:
    """The command line; see the top of this file."""
    start = time.perf_counter()
    ours = ["torch_max_backend.backend"] if framework == "max" else []
    for module in ("torch", "transformers", *ours):
        importlib.import_module(module)
    imported = time.perf_counter()
    generate = generating(dtype, "auto" if framework == "max" else framework)
    built = time.perf_counter()

    seconds: list[float] = []
    texts: list[list[int]] = []
    for _ in range(1 + int(calls)):
        before = time.perf_counter()
        texts.append(generate())
        seconds.append(time.perf_counter() - before)
    report = {
        "imports_s": imported - start,
        "build_s": built - imported,
        "first_s": seconds[0],
        "tokens_per_s": NEW_TOKENS / statistics.median(seconds[1:]),
        "same_tokens": all(text == texts[0] for text in texts[1:]),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
