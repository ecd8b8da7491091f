"""Random situations in which a module is called: modes, arguments, and what happens around it."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tests.training.random_modules import WIDTH

_SIZES = (1, 2, 3, 5, 8)
_LAYOUTS = ("contiguous",) * 5 + ("transposed", "sliced", "offset", "expanded")


@dataclass(frozen=True)
class Situation:
    """How one call is made.

    Attributes:
        seed: Of the arguments' numbers.
        sizes: Batch and steps.
        dtype: Of the arguments.
        layouts: Of the two arguments.
        shared: How both lie in one memory, or "".
        leaves: Which arguments require gradients; those that share memory do not.
        computed: Whether the arguments were computed from such leaves.
        mode: ``"grad"``, ``"no_grad"`` or ``"inference"``.
        autocast: Whether the call is under autocast to bfloat16.
        train: Whether the module trains.
        scale: The number that it is called with.
        threads: Of torch.
        in_thread: Whether another thread calls.
        before: What happens to the module before, by name (``World`` of ``fuzz_calls`` does it).
        after: What happens to the results, likewise.
    """

    seed: int
    sizes: tuple[int, int]
    dtype: torch.dtype
    layouts: tuple[str, str]
    shared: str
    leaves: tuple[bool, bool]
    computed: bool
    mode: str
    autocast: bool
    train: bool
    scale: float
    threads: int
    in_thread: bool
    before: str
    after: str

    def __str__(self) -> str:
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


def situation(rng: random.Random) -> Situation:
    """A random one; the ordinary is likelier than the rest."""
    sizes = (rng.choice(_SIZES), rng.choice(_SIZES)) if rng.random() < 0.35 else (2, 3)
    return Situation(
        seed=rng.randrange(1 << 20),
        sizes=sizes,
        dtype=rng.choice((torch.float32,) * 6 + (torch.float64, torch.bfloat16)),
        layouts=(rng.choice(_LAYOUTS), rng.choice(_LAYOUTS)),
        shared=rng.choice(("",) * 8 + ("same", "view", "overlapping")),
        leaves=(rng.random() < 0.5, rng.random() < 0.3),
        computed=rng.random() < 0.2,
        mode=rng.choice(("grad",) * 5 + ("no_grad", "inference")),
        autocast=rng.random() < 0.2,
        train=rng.random() < 0.6,
        scale=rng.choice((1.0, 1.0, 2, 0.5)),
        threads=rng.choice((2,) * 6 + (1,)),
        in_thread=rng.random() < 0.08,
        before=rng.choice(
            ("",) * 6
            + ("step", "data", "copy", "late", "error", "zero_grad", "freeze", "load", "eager")
        ),
        after=rng.choice(
            ("backward", "backward", "twice", "last", "grad", "late", "keep", "keep", "write", "")
        ),
    )


def arguments(s: Situation) -> tuple[list[Tensor], list[Tensor]]:
    """The two tensors and the integers of a situation, and those of them that are leaves."""
    generator = torch.Generator().manual_seed(s.seed)
    x, y = (_tensor(s, layout, generator) for layout in s.layouts)
    if s.shared == "same":
        y = x
    elif s.shared == "view":
        y = x.transpose(0, 1).transpose(0, 1)
    elif s.shared == "overlapping":
        memory = torch.randn(x.numel() + WIDTH, generator=generator).to(s.dtype)
        x, y = memory[:-WIDTH].view(x.shape), memory[WIDTH:].view(x.shape)
    leaves = []
    if not s.shared:
        leaves = [
            t.requires_grad_() for t, is_leaf in zip((x, y), s.leaves, strict=True) if is_leaf
        ]
    if s.computed:
        x, y = x * 1.0, y * 1.0
    words = torch.randint(0, 9, s.sizes, generator=generator)
    return [x, y, words], leaves


def _tensor(s: Situation, layout: str, generator: torch.Generator) -> Tensor:
    batch, steps = s.sizes

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(s.dtype)

    if layout == "transposed":
        return numbers(steps, batch, WIDTH).transpose(0, 1)
    if layout == "sliced":
        return numbers(batch, steps + 2, 2 * WIDTH)[:, 1:-1, ::2]
    if layout == "offset":
        return numbers(batch * steps * WIDTH + 3)[3:].view(batch, steps, WIDTH)
    if layout == "expanded":
        return numbers(1, steps, WIDTH).expand(batch, steps, WIDTH)
    return numbers(batch, steps, WIDTH)
