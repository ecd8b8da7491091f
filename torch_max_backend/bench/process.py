"""One framework in a process of its own.

``python -m torch_max_backend.bench.process FRAMEWORK SPEC RESULTS``: SPEC is JSON; the results of
the first call go to the file RESULTS. Prints one line of JSON: seconds to ``load`` the model and of
the ``first`` call, the milliseconds of each later one (``calls``), ``memory`` in MB, ``items`` and
``unit``; or ``unavailable`` with a reason.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from torch_max_backend.bench.frameworks import FRAMEWORKS, Unavailable
from torch_max_backend.bench.models import Subject, load
from torch_max_backend.bench.spec import Spec

# The truth that all are compared with: eager PyTorch in float64.
TRUTH = "float64"
# What the calls of `generate` make.
GENERATED = "new tokens"
# Calls that are not counted, and the most that are.
_WARM, _MOST = 3, 2000


def main(framework: str, spec: str, results: str) -> None:
    """Measure, and print what was found."""
    print(json.dumps(measure(framework, Spec(**json.loads(spec)), Path(results))), flush=True)


def measure(framework: str, spec: Spec, results: Path) -> dict[str, Any]:
    """The figures of one framework."""
    if spec.threads:
        torch.set_num_threads(spec.threads)
    begin = time.perf_counter()
    subject = load(spec)
    if framework == TRUTH:
        subject = _widened(subject)
    loaded = time.perf_counter() - begin
    try:
        make = FRAMEWORKS["eager" if framework == TRUTH else framework]
        begin = time.perf_counter()
        step = _step(make(subject, spec.mode), subject, spec)
        found = step(True)
        _wait(spec)
        first = time.perf_counter() - begin
    except Unavailable as e:
        return {"unavailable": str(e)}
    torch.save([t.detach().double().cpu() for t in _tensors(found)], results)
    calls = [] if framework == TRUTH else _timed(step, spec)
    return {
        "load": loaded,
        "first": first,
        "calls": calls,
        "memory": _memory(spec),
        "items": subject.items if spec.mode != "generate" else spec.batch * spec.new_tokens,
        "unit": GENERATED if spec.mode == "generate" else subject.unit,
    }


def _wait(spec: Spec) -> None:
    if spec.device == "cuda":
        torch.cuda.synchronize()


def _memory(spec: Spec) -> float:
    """The most that the process held; of a device, what it holds now, whoever allocated it. In
    MB."""
    if spec.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _widened(subject: Subject) -> Subject:
    def wide(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if floating else value

    kwargs = {k: wide(v) for k, v in subject.kwargs.items()}
    args = tuple(map(wide, subject.args))
    return Subject(subject.model.double(), args, kwargs, subject.items, subject.unit)


def _step(made: Any, subject: Subject, spec: Spec) -> Callable[[bool], Any]:
    """What is timed: with True for the first call, whose results are kept."""
    if spec.mode == "training":
        return _training_step(made, subject)
    if spec.mode == "generate":
        return _generating(subject, spec)

    def infer(first: bool) -> Any:
        with torch.no_grad():
            return subject.call(made)

    return infer


def _training_step(made: Any, subject: Subject) -> Callable[[bool], Any]:
    subject.model.train()
    for module in subject.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # masks are other ones in each framework
    parameters = [p for p in subject.model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, 1e-3)

    def train(first: bool) -> Any:
        optimizer.zero_grad()
        outputs = [t for t in _tensors(subject.call(made)) if t.requires_grad]
        loss = sum((t.float().square().mean() for t in outputs), torch.zeros(()))
        loss.backward()
        kept = [loss.detach(), *(p.grad.clone() for p in parameters if p.grad is not None)]
        optimizer.step()
        return kept if first else loss

    return train


def _generating(subject: Subject, spec: Spec) -> Callable[[bool], Any]:
    model: Any = subject.model
    if not hasattr(model, "generate"):
        raise Unavailable("the model has no generate()")
    model.generation_config.eos_token_id = None  # no token ends the text before its time
    settings = {
        "max_new_tokens": spec.new_tokens,
        "max_cache_len": spec.length + spec.new_tokens,
        "cache_implementation": "static",
        "do_sample": False,
        "pad_token_id": 0,
        "disable_compile": True,  # by transformers, with inductor
    }

    def generate(first: bool) -> Any:
        with torch.no_grad():
            return model.generate(**subject.kwargs, **settings)

    return generate


def _timed(step: Callable[[bool], Any], spec: Spec) -> list[float]:
    for _ in range(_WARM):
        step(False)
    calls: list[float] = []
    end = time.perf_counter() + spec.seconds
    while len(calls) < _MOST and (time.perf_counter() < end or len(calls) < _WARM):
        begin = time.perf_counter()
        step(False)
        _wait(spec)
        calls.append((time.perf_counter() - begin) * 1e3)
    return calls


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result, at any depth, caches of keys and values aside."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):  # outputs of transformers are dicts
        for name, part in value.items():
            if name != "past_key_values":
                yield from _tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


if __name__ == "__main__":
    main(*sys.argv[1:])
