"""Random modules, called again and again in random situations, beside eager PyTorch.

    uv run python -m tests.training.fuzz_calls --seconds 900 [--first SEED]

Results, arguments, gradients and buffers are compared after each call, and results that were kept
once more in the end. Prints module and situation of each difference; those that
``backend="aot_eager"`` shows too are torch's. Ends with 1 if there was another.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.engines.steps.fuzz import seeds_of
from tests.training.random_modules import RandomModule
from tests.training.situations import Situation, arguments, situation
from torch_max_backend.compat import dynamo

CALLS = 24
# Relative to the largest number. Gradients of parameters are float32, whatever else is float64.
_TOLERANCE = {torch.bfloat16: 0.06, torch.float64: 2e-5}
_MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}
# What AOTAutograd keeps for backward is not what eager keeps: only one of them may be overwritten.
_OVERWRITTEN = ("modified by an inplace operation", "torch.utils.checkpoint")

Compared = list[tuple[str, Any]]


class World:
    """A random module and what calls of it left behind, in eager PyTorch or compiled."""

    def __init__(self, seed: int, backend: str | None) -> None:
        self.module = RandomModule(seed)
        self.compiled = backend is not None
        self.call: Any = self.module
        if backend is not None:
            dynamic = (None, None, True, False)[seed % 4]
            # Of every third module, torch runs all graphs: they are too small.
            options = {"fallback": "eager", "min_ops": 1 if seed % 3 else 200}
            self.call = torch.compile(
                self.module,
                backend=backend,
                dynamic=dynamic,
                options=options if backend == "max" else None,
            )
        self.kept: list[Any] = []
        self.late: list[tuple[Tensor, list[Tensor]]] = []
        self.overwritten = False
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=0.05)

    def act(self, s: Situation) -> Compared:
        """Make a call; returns what has to be the same in both worlds."""
        found = self._before(s)
        self.module.train(s.train)
        box: list[Any] = []

        def call() -> None:
            try:
                box.append(self._called(s, found))
            except Exception as e:
                box.append(e)

        if s.in_thread:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        else:
            call()
        if isinstance(box[0], Exception):
            return [*found, ("error", box[0])]
        given, leaves, results = box[0]
        found += [("result", results), ("argument", given)]
        try:
            found += self._after(s, leaves, results)
        except Exception as e:
            found.append(("error", self._unless_overwritten(e)))
        if s.after == "keep":
            self.kept.append(results)
        return [*found, *self.state()]

    def state(self) -> Compared:
        """What the module holds."""
        gradients = [p.grad for p in self.module.parameters()]
        return [("gradient", gradients), ("buffer", list(self.module.buffers()))]

    def _before(self, s: Situation) -> Compared:
        m, numbers = self.module, torch.Generator().manual_seed(s.seed)
        new = torch.randn(m.w[0].shape, generator=numbers)
        if s.before == "step":
            self.optimizer.step()
        elif s.before == "data":
            m.w[0].data = new
        elif s.before == "copy":
            with torch.no_grad():
                m.w[0].copy_(new)
        elif s.before == "zero_grad":
            self.optimizer.zero_grad(set_to_none=bool(s.seed % 2))
        elif s.before == "freeze":
            m.w[0].requires_grad_(not m.w[0].requires_grad)
        elif s.before == "load":
            state = m.state_dict()
            m.load_state_dict(
                {k: v * 0.9 if v.dtype.is_floating_point else v for k, v in state.items()}
            )
        elif s.before == "late":
            return self._late(s)
        return []

    def _late(self, s: Situation) -> Compared:
        found: Compared = []
        for loss, leaves in self.late[:: -1 if s.seed % 2 else 1]:
            try:
                loss.backward()
                found.append(("late gradient", [x.grad for x in leaves]))
            except Exception as e:
                found.append(("error", self._unless_overwritten(e)))
        self.late.clear()
        return found

    def _unless_overwritten(self, error: Exception) -> Exception:
        self.overwritten |= any(text in str(error) for text in _OVERWRITTEN)
        return error

    def _called(self, s: Situation, found: Compared) -> Any:
        autocast = torch.autocast("cpu", torch.bfloat16) if s.autocast else nullcontext()
        eager = s.before == "eager" and self.compiled
        stance = torch.compiler.set_stance("force_eager") if eager else nullcontext()
        # Settings of Dynamo are a thread's own.
        with _settings(), _MODES[s.mode](), autocast, stance:
            given, leaves = arguments(s)
            if s.before == "error":
                self._refused(given, s, found)
            return given, leaves, self.call(*given, s.scale)

    def _refused(self, given: list[Tensor], s: Situation, found: Compared) -> None:
        state = {k: v.clone() for k, v in self.module.state_dict().items()}
        x, y = (t.detach().clone() for t in given[:2])
        try:
            self.call(x, y[..., :-1], given[2], s.scale)
            found.append(("accepted", True))
        except Exception:
            found.append(("accepted", False))
        # How much was written before the error is not the same.
        self.module.load_state_dict(state)

    def _after(self, s: Situation, leaves: list[Tensor], results: Any) -> Compared:
        if s.after == "write":
            with torch.inference_mode(s.mode == "inference"), torch.no_grad():
                for x in _tensors(results):
                    if x.is_floating_point() and not x.requires_grad:
                        x.mul_(3)
        loss = _loss(results, s)
        if loss is None or s.mode != "grad":
            return []
        if s.after == "grad":
            wanted = [p for p in self.module.parameters() if p.requires_grad] + leaves
            return [("gradient of", torch.autograd.grad(loss, wanted, allow_unused=True))]
        if s.after in ("backward", "twice", "last"):
            loss.backward(retain_graph=s.after == "twice")
            if s.after == "twice":
                loss.backward()
            return [("gradient of argument", [x.grad for x in leaves])]
        if s.after == "late":
            self.late.append((loss, leaves))
        return []


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _settings() -> Any:
    return dynamo.config.patch(recompile_limit=200, accumulated_recompile_limit=5000)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for v in value:
            yield from _flat(v)
    else:
        yield value


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in _flat(value) if isinstance(x, Tensor)]


def _loss(results: Any, s: Situation) -> Tensor | None:
    generator = torch.Generator().manual_seed(s.seed)
    differentiable = [x for x in _tensors(results) if x.requires_grad]
    if s.after == "last":
        differentiable = differentiable[-1:]
    weighed = [
        (x.double() * torch.randn(x.shape, generator=generator)).sum() for x in differentiable
    ]
    return torch.stack(weighed).sum() if weighed else None


def _difference(theirs: Any, ours: Any, rough: bool) -> str:
    """How a value differs from eager's, or ""."""
    if theirs is None and isinstance(ours, Tensor) and not ours.any():
        return ""  # AOTAutograd's gradient of what a loss does not use
    if isinstance(theirs, Exception) and isinstance(ours, Exception):
        return ""
    if not isinstance(theirs, Tensor) or not isinstance(ours, Tensor):
        same = type(theirs) is type(ours) and theirs == ours
        return "" if same else f"eager {theirs!r}, compiled {ours!r}"
    kinds = [
        (t.dtype, t.shape, t.requires_grad, t.is_inference(), t.grad_fn is None)
        for t in (theirs, ours)
    ]
    if kinds[0] != kinds[1]:
        return f"eager {kinds[0]}, compiled {kinds[1]}"
    a, b = (t.detach().double() for t in (theirs, ours))
    tolerance = max(_TOLERANCE.get(theirs.dtype, 1e-3), 0.1 if rough else 0)
    largest = a[a.isfinite()].abs().max().item() if a.isfinite().any() else 0.0
    close = torch.allclose(a, b, rtol=0, atol=tolerance * max(largest, 1), equal_nan=True)
    return "" if close else f"numbers up to {largest:.4} differ by {(a - b).abs().max():.2}"


def _compare(found: tuple[Compared, Compared], rough: bool) -> None:
    theirs, ours = ([(k, x) for k, v in one for x in _flat(v)] for one in found)
    kinds = [[k if k != "error" else repr(x) for k, x in one] for one in (theirs, ours)]
    assert [k for k, _ in theirs] == [k for k, _ in ours], "eager {}\ncompiled {}".format(*kinds)
    for (kind, a), (_, b) in zip(theirs, ours, strict=True):
        assert not (text := _difference(a, b, rough)), f"{kind}: {text}"


def _situations(rng: random.Random, calls: int) -> Iterator[Situation]:
    while calls > 0:
        s = situation(rng)
        # What is done once a graph differs from what is done from its second or third call on.
        for n in range(min(rng.choice((1, 3)), calls)):
            yield replace(s, before="", seed=s.seed + n) if n else s
            calls -= 1


def check(seed: int, backend: str = "max", calls: int = CALLS) -> int:
    """Call the module of a seed in random situations.

    Returns:
        How many calls were made: the first that both refuse is the last.

    Raises:
        AssertionError: Something differs from eager; the text has module and situation.
    """
    torch._dynamo.reset()
    rng, worlds = random.Random(seed), (World(seed, None), World(seed, backend))
    text, rough = str(worlds[0].module), False
    for n, s in enumerate(_situations(rng, calls)):
        rough |= s.autocast or s.dtype == torch.bfloat16 or "_cast" in text or "_autocast " in text
        try:
            with _threads(s.threads):
                found = worlds[0].act(s), worlds[1].act(s)
            if any(w.overwritten for w in worlds):
                return n
            _compare(found, rough)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}, call {n}: {s}\n{text}\n{e}") from e
        if any(kind == "error" for kind, _ in found[0]):
            return n
    try:
        _compare(([("kept", worlds[0].kept)], [("kept", worlds[1].kept)]), rough)
    except AssertionError as e:
        raise AssertionError(f"seed {seed}, in the end:\n{text}\n{e}") from e
    return calls


def main() -> int:
    """Check modules for the seconds that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.training.fuzz_calls")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    modules = calls = ours = theirs = 0
    # AOTAutograd's own function refuses a second backward pass otherwise.
    torch._functorch.config.donated_buffer = False
    for seed in seeds_of(asked.first, asked.seconds):
        modules += 1
        try:
            calls += check(seed)
        except AssertionError as e:
            try:
                check(seed, "aot_eager")
            except AssertionError:
                theirs += 1
                print(f"with aot_eager too: {e}", flush=True)
                continue
            ours += 1
            print(e, flush=True)
    print(
        f"{modules} modules, {calls} calls: {ours} differ, {theirs} with aot_eager too", flush=True
    )
    return int(ours > 0)


if __name__ == "__main__":
    sys.exit(main())
