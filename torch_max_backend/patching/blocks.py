"""Modules compiled one by one, each kind once."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from torch_max_backend.compat.dynamo import config
from torch_max_backend.errors import PatchError
from torch_max_backend.patching.observers import own_forward
from torch_max_backend.patching.twins import Twin

_LAYERS = ("torch.nn.modules.", "torch.ao.nn.")


def is_block(module: nn.Module) -> bool:
    """Whether a module is made of layers: it is of a class outside torch, has modules inside, and
    these are of ``torch.nn`` or have none inside themselves."""
    children = [m for m in module._modules.values() if m is not None]
    if not children or type(module).__module__.startswith(_LAYERS):
        return False
    return all(not any(True for _ in child.children()) for child in children)


class compiled:
    """How ``patch`` compiles modules: each as one graph, those of one class and shapes once.

    Args:
        dynamic: That of ``torch.compile``.
        mode: That of ``torch.compile``.
        options: Those of this backend (``docs/options.md``).
    """

    traced_as_it_was = True

    def __init__(
        self,
        *,
        dynamic: bool | None = None,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = {"dynamic": dynamic, "mode": mode, "options": options}
        self._counts: Counter[Callable[..., Any]] = Counter()
        self._made: dict[Callable[..., Any], Callable[..., Any]] = {}

    def forwards(self, module: nn.Module) -> Mapping[nn.Module, Callable[..., Any]]:
        """The compiled forward of a module.

        Raises:
            PatchError: The module has a forward of its own, beside that of its class.
        """
        if own_forward(module) is not type(module).forward:
            raise PatchError(
                f"A {type(module).__name__} has a forward of its own, set by another patch or by a "
                "library, which would not be compiled.",
                "Undo that first, or give patch a key that does not fit the module.",
            )
        forward = type(module).forward
        self._counts[forward] += 1

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            run = self._made.get(forward) or self._compile(forward)
            return Twin.of(module).call(module, run, args, kwargs)

        return {module: call}

    def _compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        from torch_max_backend.backend import max_backend

        # Dynamo's limit is for a function, which several modules share here; those that differ, by
        # the number of their layer in a cache, say, each need what one may have.
        limit = self._counts[forward] * config.recompile_limit
        settings = {"backend": max_backend, **self._settings}
        if "recompile_limit" in inspect.signature(torch.compile).parameters:
            settings["recompile_limit"] = limit
        made = self._made[forward] = torch.compile(forward, **settings)
        return made
