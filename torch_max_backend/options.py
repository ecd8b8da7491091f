"""Options of ``torch.compile(..., backend="max", options={...})`` as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_max_backend.errors import OptionError

_MODES = ("default",)
_BANKS = ("mojo", "mkl")
_FALLBACKS = ("eager", "error")


@dataclass(frozen=True)
class Options:
    """What a user may set.

    Attributes:
        cache: Keep and reuse compiled artifacts on disk. ``None``: as ``TORCH_MAX_BACKEND_CACHE``
            says (on unless set).
        bank: Who computes matrix products, convolutions and attention on CPU: ``"mojo"`` (kernels
            of this package), ``"mkl"`` (torch's MKL, called from MAX's threads), ``False`` (MAX's
            own, compiled anew for each shape). ``None``, ``True``: the fastest for this processor.
        background: Answer calls with eager PyTorch while a process of its own compiles, and switch
            to the compiled model between two calls. ``None``: no, the first call waits.
        activation_memory_budget: How much of the memory for what forward keeps for backward may be
            used, from 0.0 (keep the inputs, compute the rest again) to 1.0 (keep what is not
            cheaper to compute again). ``None``: as ``torch._functorch.config`` says (1.0).
        fallback: What becomes of operators that MAX cannot take: ``"eager"`` (eager PyTorch runs
            them, between the parts that MAX takes) or ``"error"`` (an exception names all of
            them). ``None``: as ``TORCH_MAX_BACKEND_FALLBACK`` says (eager unless set).
        min_ops: Graphs, and parts of a graph that MAX does not take whole, with fewer operators
            stay with eager PyTorch. Sizes, views and results of operators that have several do not
            count. ``None``: 2 for graphs, 6 for parts. Without effect with ``fallback="error"``.
    """

    cache: bool | None = None
    bank: bool | str | None = None
    background: bool | None = None
    activation_memory_budget: float | None = None
    fallback: str | None = None
    min_ops: int | None = None

    @classmethod
    def parse(cls, mode: str | None, options: Mapping[str, Any] | None) -> Options:
        """Check ``mode=`` and ``options=`` of ``torch.compile``.

        Raises:
            OptionError: An unknown name (with the nearest known one), a value of another type, or
                an unknown mode.
        """
        if mode is not None and mode not in _MODES:
            raise OptionError(
                f"Unknown mode {mode!r} for the max backend.{_nearest(mode, _MODES)}",
                f"Known modes: {', '.join(_MODES)}.",
            )
        known = {f.name: f for f in dataclasses.fields(cls)}
        for name, value in (options or {}).items():
            if name not in known:
                raise OptionError(
                    f"Unknown option {name!r} for the max backend.{_nearest(name, known)}",
                    f"Known options: {', '.join(known)}.",
                )
            if name == "activation_memory_budget":
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                fits, kind = number and 0 <= value <= 1, "a number from 0 to 1"
            elif name == "min_ops":
                fits, kind = type(value) is int and value >= 0, "an int from 0"
            elif name == "fallback":
                fits, kind = value in _FALLBACKS, " or ".join(map(repr, _FALLBACKS))
            else:
                words = _BANKS if name == "bank" else ()
                fits = isinstance(value, bool) or value in words
                kind = ", ".join(map(repr, (*words, True, False)))
            if value is not None and not fits:
                raise OptionError(
                    f"Option {name!r} of the max backend must be {kind} or None, "
                    f"not {value!r} ({type(value).__name__})."
                )
        return cls(**(options or {}))


def _nearest(name: str, known: Any) -> str:
    match = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {match[0]!r}?" if match else ""
