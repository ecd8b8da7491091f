"""Swapping the forward of modules, and putting back exactly what was there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import MethodType
from typing import Any, Protocol

import torch
from torch import nn

from torch_max_backend.compat import nnsight
from torch_max_backend.errors import PatchError
from torch_max_backend.log import several
from torch_max_backend.patching.observers import PATCH, observed, own_forward
from torch_max_backend.patching.twins import Twin

Key = type[nn.Module] | str | Callable[[nn.Module], bool]

_ABSENT = object()
# Where a model keeps its patches: a dictionary of ours would hold a model that is patched whole.
_KEPT = "_torch_max_backend_patches"


class Rewrite(Protocol):
    """What makes other forwards for modules."""

    # Whether torch.compile, in a model around the module, is to trace the module's own forward.
    traced_as_it_was: bool

    def forwards(self, module: nn.Module) -> Mapping[nn.Module, Callable[..., Any]]:
        """Functions ``(module, *args, **kwargs)`` by the modules whose forward they stand for."""
        ...


class _Function:
    """A user's function in the place of a forward."""

    traced_as_it_was = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def forwards(self, module: nn.Module) -> Mapping[nn.Module, Callable[..., Any]]:
        return {module: self._function}


class _Switch:
    """Between a module's own forward and the other one.

    Attributes:
        on: Whether the patch is in force.
        run: The other forward.
        traced_as_it_was: That of the rewrite.
    """

    def __init__(self, run: Callable[..., Any], traced_as_it_was: bool) -> None:
        self.on = True
        self.run = run
        self.traced_as_it_was = traced_as_it_was


class Patch:
    """Modules with another forward; a context manager, which restores them at its end.

    Attributes:
        names: The modules' names in the model, in order.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names: list[str] = []
        self._model = model
        self._switches: list[_Switch] = []
        self._before: list[tuple[nn.Module, Any, Any]] = []

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"<Patch of {several(len(self.names), 'module')}: {', '.join(self.names)}>"

    @property
    def in_force(self) -> bool:
        """Whether it is not undone yet."""
        return bool(self._before)

    def restore(self) -> None:
        """Give every module back the forward that it had; a second time does nothing."""
        for switch in self._switches:
            switch.on = False
        for module, ours, before in reversed(self._before):
            Twin.drop(module)
            # What somebody has put around ours since, as nnsight does, stays: it reaches a
            # function that is switched off, which calls the module's own forward.
            if module.__dict__.get("forward") is not ours:
                continue
            if before is _ABSENT:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = before
        self._before.clear()
        kept: list[Patch] = self._model.__dict__.get(_KEPT, [])
        if self in kept:
            kept.remove(self)
        if not kept:
            self._model.__dict__.pop(_KEPT, None)

    def _swap(self, name: str, module: nn.Module, rewrite: Rewrite) -> None:
        if nnsight.is_controller(module.__dict__.get("forward")):
            raise PatchError(
                f"{name or 'The model'} ({type(module).__name__}) is wrapped by nnsight already, "
                "which has set its forward.",
                "Patch the model first, then wrap it: NNsight(model).",
            )
        for target, run in rewrite.forwards(module).items():
            before = target.__dict__.get("forward", _ABSENT)
            switch = _Switch(run, rewrite.traced_as_it_was)
            ours = MethodType(_switched(own_forward(target), switch), target)
            # torch.nn.Module looks at every attribute that is set; this one is not for it.
            target.__dict__["forward"] = ours
            self._switches.append(switch)
            self._before.append((target, ours, before))
        self.names.append(name)


class _Patches(list[Patch]):
    """The patches of a model, in order. A copy of the model has none of its own."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Patches:
        return _Patches()

    def __reduce__(self) -> Any:
        return _Patches, ()


def _switched(original: Callable[..., Any], switch: _Switch) -> Callable[..., Any]:
    # One function is called by its name here, the module's own: where nnsight looks for the source
    # of a forward that is wrapped.
    @functools.wraps(original)
    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            if switch.on and not switch.traced_as_it_was:
                return switch.run(module, *args, **kwargs)
        elif switch.on and not observed(module):
            return switch.run(module, *args, **kwargs)
        return original(module, *args, **kwargs)

    setattr(forward, PATCH, True)
    return forward


def patch(
    model: nn.Module, rewrites: Mapping[Key, Rewrite | Callable[..., Any]] | None = None
) -> Patch:
    """Run modules of an eager model as fused kernels.

    The modules stay what they are, with their parameters, names, hooks and state dict; only
    ``forward`` is another. Hooks and interventions on a patched module see what they always see;
    while there are any *inside* one, its own forward runs. Use it as ``with patch(model):``, or
    undo it with ``unpatch(model)`` or the result's ``restore()``.

    Args:
        model: The model, patched in place; it may be of any class, in training or not.
        rewrites: By what is to be patched, how. A key is a class of modules, a pattern of names
            (``"layers.*.mlp"``, where ``*`` stands for one part of a name; ``""`` is the model) or
            a function that takes a module and says whether it is meant. A value is ``compiled()``,
            ``packed("q", "k", "v")`` or a function ``(module, *args, **kwargs)`` of your own that
            computes what the module's forward computes. The first key that fits a module decides.
            Without rewrites, ``{is_block: compiled()}``: each module that is made of layers of
            ``torch.nn`` is compiled as one.

    Returns:
        The patch: a context manager.

    Raises:
        PatchError: Nothing in the model fits a key; or nnsight has wrapped a module already; or a
            rewrite cannot be made for a module.
    """
    from torch_max_backend.patching.blocks import compiled, is_block

    given: Mapping[Key, Any] = {is_block: compiled()} if rewrites is None else rewrites
    made = {k: v if hasattr(v, "forwards") else _Function(v) for k, v in given.items()}
    result, fitting = Patch(model), set()
    seen: set[nn.Module] = set()
    try:
        for name, module in model.named_modules():
            key = next((k for k in made if _fits(k, name, module)), _ABSENT)
            if key is not _ABSENT and module not in seen:
                seen.add(module)
                fitting.add(key)
                result._swap(name, module, made[key])  # type: ignore[index]
        for key in made:
            if key not in fitting:
                raise PatchError(_nothing_fits(key, model))
    except BaseException:
        result.restore()
        raise
    model.__dict__.setdefault(_KEPT, _Patches()).append(result)
    return result


def unpatch(model: nn.Module) -> None:
    """Undo every patch of a model; does nothing if there is none.

    Args:
        model: What was given to ``patch``.
    """
    for found in reversed([*model.__dict__.get(_KEPT, ())]):
        found.restore()


def _fits(key: Key, name: str, module: nn.Module) -> bool:
    if isinstance(key, str):
        parts, patterns = name.split("."), key.split(".")
        return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
    if isinstance(key, type):
        return isinstance(module, key)
    return key(module)


def _nothing_fits(key: Key, model: nn.Module) -> str:
    classes = sorted({type(m).__name__ for m in model.modules()})
    what = repr(key) if isinstance(key, str) else getattr(key, "__name__", repr(key))
    return (
        f"Nothing in the model fits {what}. Its modules are of the classes {', '.join(classes)}; "
        "their names are those of model.named_modules()."
    )
