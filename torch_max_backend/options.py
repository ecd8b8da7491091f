"""Options of ``torch.compile(..., backend="max", options={...})`` as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_max_backend.errors import OptionError

MODES = ("default", "reduce-overhead", "max-autotune")
BANKS = ("mojo", "mkl")
FALLBACKS = ("eager", "inductor", "error")
ENGINES = ("auto", "steps", "max")
# Passes that a graph can do without (``driver/passes.py`` says what each does).
OPTIONAL_PASSES = ("constant_folding", "strided_copies", "narrow_weights", "epilogue_fusion")


@dataclass(frozen=True)
class Options:
    """What a user may set.

    Attributes:
        mode: ``"default"``; ``"reduce-overhead"`` (on a GPU, kernel launches are captured once as a
            device graph and replayed; on CPU as the default) or ``"max-autotune"`` (each graph is
            made with every engine and bank that this machine has, and the fastest is kept).
            ``mode=`` of ``torch.compile`` says the same, but torch does not take it beside
            ``options=``.
        engine: Who executes graphs: ``"steps"`` (on CPU, a table of calls of precompiled kernels:
            nothing is compiled for a graph), ``"max"`` (MAX compiles each graph) or ``"auto"``
            (steps on CPU where they can, else MAX). ``None``: as ``TORCH_MAX_BACKEND_ENGINE`` says
            (auto unless set).
        fuse: Whether the steps engine compiles the element-wise programs of a graph, which it
            otherwise interprets: before the first call returns (``True``), never (``False``).
            ``None``: as ``TORCH_MAX_BACKEND_FUSE`` says (in the background, once a graph has been
            called several times, unless set).
        pack: Whether the steps engine keeps parameters also in the form in which its kernels
            read them fastest, for inference: made once, and again when torch counts a write. What
            is written through ``.data`` it does not count. ``None``: no.
        cache: Keep and reuse compiled artifacts on disk. ``None``: as ``TORCH_MAX_BACKEND_CACHE``
            says (on unless set).
        bank: Who computes matrix products, convolutions and attention on CPU: ``"mojo"`` (kernels
            of this package), ``"mkl"`` (torch's MKL, called from the engine's threads), ``False``
            (MAX's own, compiled anew for each shape). ``None``, ``True``: the fastest for this
            processor.
        background: Answer calls with eager PyTorch while a process of its own compiles, and switch
            to the compiled model between two calls. ``None``: no, the first call waits.
        activation_memory_budget: How much of the memory for what forward keeps for backward may be
            used, from 0.0 (keep the inputs, compute the rest again) to 1.0 (keep what is not
            cheaper to compute again). ``None``: as ``torch._functorch.config`` says (1.0).
        fallback: What becomes of operators that MAX cannot take: ``"eager"`` (eager PyTorch runs
            them, between the parts that MAX takes), ``"inductor"`` (torch's own compiler does) or
            ``"error"`` (an exception names all of them). ``None``: as
            ``TORCH_MAX_BACKEND_FALLBACK`` says (eager unless set).
        min_ops: Graphs, and parts of a graph that MAX does not take whole, with fewer operators
            stay with torch. Sizes, views and results of operators that have several do not count.
            ``None``: 1 with the steps engine, with MAX's 2 for graphs and 6 for parts. Without
            effect with ``fallback="error"``.
        skip_passes: Names of passes over the graph to leave out, to find one that makes a result
            wrong: ``"constant_folding"``, ``"strided_copies"``, ``"narrow_weights"``,
            ``"epilogue_fusion"``.
    """

    mode: str = "default"
    engine: str | None = None
    fuse: bool | None = None
    pack: bool | None = None
    cache: bool | None = None
    bank: bool | str | None = None
    background: bool | None = None
    activation_memory_budget: float | None = None
    fallback: str | None = None
    min_ops: int | None = None
    skip_passes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, mode: str | None, options: Mapping[str, Any] | None) -> Options:
        """Check ``mode=`` and ``options=`` of ``torch.compile``.

        Raises:
            OptionError: An unknown name (with the nearest known one), a value of another type, an
                unknown mode, or two modes.
        """
        given = dict(options or {})
        known = {f.name: f for f in dataclasses.fields(cls)}
        for name in given:
            if name not in known:
                raise OptionError(
                    f"Unknown option {name!r} for the max backend.{_nearest(name, known)}",
                    f"Known options: {', '.join(known)}.",
                )
        if mode is not None and given.get("mode", mode) != mode:
            raise OptionError(
                f"Two modes for the max backend: {mode!r}, and {given['mode']!r} in options."
            )
        given["mode"] = _mode(given.get("mode") or mode or "default")
        for name, value in given.items():
            if name == "mode" or value is None:
                continue
            fits, kind = _fits(name, value)
            if not fits:
                raise OptionError(
                    f"Option {name!r} of the max backend must be {kind} or None, "
                    f"not {value!r} ({type(value).__name__})."
                )
        given["skip_passes"] = tuple(given.get("skip_passes") or ())
        return cls(**given)


def _mode(mode: Any) -> str:
    if mode not in MODES:
        raise OptionError(
            f"Unknown mode {mode!r} for the max backend.{_nearest(mode, MODES)}",
            f"Known modes: {', '.join(MODES)}.",
        )
    return mode


def _fits(name: str, value: Any) -> tuple[bool, str]:
    """Whether an option takes a value, and what values it takes, in words."""
    if name == "activation_memory_budget":
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and 0 <= value <= 1, "a number from 0 to 1"
    if name == "min_ops":
        return type(value) is int and value >= 0, "an int from 0"
    if name == "skip_passes":
        fits = isinstance(value, (list, tuple)) and all(v in OPTIONAL_PASSES for v in value)
        return fits, f"a list of names among {', '.join(map(repr, OPTIONAL_PASSES))}"
    if name in ("fallback", "engine"):
        allowed = FALLBACKS if name == "fallback" else ENGINES
        return value in allowed, ", ".join(map(repr, allowed))
    words = BANKS if name == "bank" else ()
    fits = isinstance(value, bool) or value in words
    return fits, ", ".join(map(repr, (*words, True, False)))


def _nearest(name: str, known: Any) -> str:
    match = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {match[0]!r}?" if match else ""
