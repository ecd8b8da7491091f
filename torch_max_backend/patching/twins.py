"""A second module with the parameters of a first: what Dynamo sees of a patched module.

Hooks, and what nnsight and others set on modules, are on the first: they would be traced, guarded
and, since no two modules have the same, compiled once for each module. The twin has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from torch_max_backend.compat import nnsight
from torch_max_backend.patching.observers import inner, is_ours

_KEPT = "_torch_max_backend_twin"
_OWN = ("forward", "_modules", _KEPT)


class Twin:
    """The twin of a module, made when it is first called and again when the module has changed."""

    def __init__(self) -> None:
        self._twin: nn.Module | None = None
        self._seen: list[tuple[dict[str, Any], list[Any], list[Any]]] = []

    @staticmethod
    def of(module: nn.Module) -> Twin:
        """The twin of a module, which the module keeps."""
        own: dict[str, Any] = module.__dict__
        found = own.get(_KEPT)
        if found is None:
            found = own[_KEPT] = Twin()
        return found

    @staticmethod
    def drop(module: nn.Module) -> None:
        """Let go of the twin of a module."""
        module.__dict__.pop(_KEPT, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Twin:
        return Twin()

    def __reduce__(self) -> Any:
        return Twin, ()

    def call(
        self, module: nn.Module, run: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Call a function with the twin in the place of the module.

        Args:
            module: The module whose twin this is.
            run: A forward, which takes the module first.
            args: What it takes then.
            kwargs: Likewise, by name.
        """
        twin = self._twin
        if twin is None or self._changed():
            self._seen = []
            twin = self._twin = self._copy(module)
        result = run(twin, *args, **kwargs)
        trace = nnsight.tracing(module)
        if trace is not None:
            nnsight.passed(trace, inner(module))
        return result

    def _changed(self) -> bool:
        try:
            # The values of a module's attributes: the same objects, nearly always, which lists
            # compare by identity first.
            for own, values, children in self._seen:
                if [*own.values()] != values or [*own["_modules"].values()] != children:
                    return True
        except (RuntimeError, ValueError, TypeError):  # another tensor or array
            return True
        return False

    def _copy(self, module: nn.Module) -> nn.Module:
        own = module.__dict__
        twin = module.__class__.__new__(module.__class__)
        attributes = {k: v for k, v in own.items() if k not in _OWN and not k.startswith("__")}
        twin.__dict__.update(attributes)
        children = own["_modules"]
        twin.__dict__["_modules"] = {
            n: None if m is None else self._copy(m) for n, m in children.items()
        }
        forward = own.get("forward")
        if is_ours(forward):  # a kernel for a module inside this one
            twin.__dict__["forward"] = forward.__func__.__get__(twin)
        self._seen.append((own, [*own.values()], [*children.values()]))
        return twin
