"""The registry of lowerings: which function converts which ATen overload.

@map_to(aten.gelu.default, supports=...)
def gelu(self: TensorValue, *, approximate: str = "none") -> TensorValue:
    return ops.gelu(self, approximate)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from torch_max_backend import environment
from torch_max_backend.compat.operators import OpOverload, OpOverloadPacket
from torch_max_backend.errors import RegistrationError
from torch_max_backend.registry.functional_counterparts import counterpart, misfit
from torch_max_backend.registry.type_checks import checked

F = TypeVar("F", bound=Callable[..., Any])
# A family of ``mojo_kernels`` ("folder.file"), "base", or Mojo sources elsewhere.
Library = str | Path
Libraries = Library | tuple[Library, ...] | None
# Of the operands of products on GPUs.
TF32 = "gemm.tf32"

# Arguments that say nothing about values: strides are metadata, which the runtime restores.
IGNORED_ARGUMENTS = frozenset({"layout", "pin_memory", "non_blocking", "memory_format"})

# ATen argument names that Python reserves; a lowering writes them with a trailing underscore.
_RESERVED = frozenset({"from", "lambda"})


@dataclass(frozen=True)
class Refusal:
    """Why a lowering does not take a node. ``reason`` completes the sentence "... refused: "."""

    reason: str


@dataclass(frozen=True)
class Lowering:
    """How one ATen overload becomes MAX.

    Attributes:
        op: The overload.
        function: Called with the overload's arguments by name.
        supports: Called with the same arguments, tensors as fake tensors; ``None`` means yes.
        parameters: The argument names that ``function`` takes.
        native16: ``function`` takes float16 and bfloat16 on CPU as they are. Otherwise the
            converter casts them to float32 before and rounds the results after.
        kernels: The library of Mojo kernels that ``function`` calls, if any, several of them, or
            what tells them from the arguments that ``supports`` takes.
        bank: ``function`` calls products of the bank.
        sizes_from_data: ``function`` builds results whose size depends on data.
        random: ``function`` draws random numbers.
    """

    op: OpOverload
    function: Callable[..., Any]
    supports: Callable[..., Refusal | None] | None
    parameters: frozenset[str]
    native16: bool
    kernels: Libraries | Callable[..., Libraries]
    bank: bool
    sizes_from_data: bool = False
    random: bool = False

    @property
    def name(self) -> str:
        return str(self.op)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the lowering, checking its type hints unless the environment says otherwise."""
        function = checked(self.function) if environment.beartype_enabled() else self.function
        return function(**{k: v for k, v in arguments.items() if k in self.parameters})

    def refusal(self, arguments: Mapping[str, Any]) -> Refusal | None:
        """Why this lowering does not take these arguments, or ``None``."""
        return None if self.supports is None else _with_names(self.supports, arguments)

    def libraries(self, arguments: Mapping[str, Any]) -> tuple[Library, ...]:
        """The libraries of Mojo kernels that this lowering calls for these arguments."""
        found = self.kernels
        if callable(found):
            found = _with_names(found, arguments)
        libraries = found if isinstance(found, tuple) else () if found is None else (found,)
        if self.bank and any(map(_is_wide_on_gpu, arguments.values())):
            libraries += (TF32,)
        return libraries


def _is_wide_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == torch.float32


def _with_names(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    names = inspect.signature(function).parameters
    return function(**{k: v for k, v in arguments.items() if k in names})


class Registry(Mapping[OpOverload, Lowering]):
    """The lowerings by overload.

    Attributes:
        lowerings: Those that are loaded; can be set, to have others for a while.
    """

    def __init__(self) -> None:
        self.lowerings: dict[OpOverload, Lowering] = {}
        self._later: dict[str, Callable[[], object]] = {}

    def __getitem__(self, op: OpOverload) -> Lowering:
        if op not in self.lowerings and isinstance(op, OpOverload) and op.namespace in self._later:
            self._later.pop(op.namespace)()
        return self.lowerings[op]

    def later(self, namespace: str, load: Callable[[], object]) -> None:
        """Call ``load``, which adds lowerings, when one for an operator of ``namespace`` is first
        asked for: the operators of a package exist once that is imported."""
        self._later[namespace] = load

    def __iter__(self) -> Iterator[OpOverload]:
        return iter(self.lowerings)

    def __len__(self) -> int:
        return len(self.lowerings)

    def add(self, lowering: Lowering, override: bool) -> None:
        if lowering.op in self.lowerings and not override:
            old = self.lowerings[lowering.op].function
            raise RegistrationError(
                f"{lowering.op} already has a lowering: {old.__module__}.{old.__qualname__}.",
                "Pass override=True to map_to to replace it.",
            )
        self.lowerings[lowering.op] = lowering

    def remove(self, op: OpOverload) -> None:
        """Forget the lowering of an overload (for tests and interactive use)."""
        del self.lowerings[op]


registry = Registry()


def map_to(
    *targets: OpOverload | OpOverloadPacket,
    supports: Callable[..., Refusal | None] | None = None,
    override: bool = False,
    native16: bool = False,
    kernels: Libraries | Callable[..., Libraries] = None,
    bank: bool = False,
    sizes_from_data: bool = False,
    random: bool = False,
) -> Callable[[F], F]:
    """Register the decorated function as the lowering of ATen overloads.

    The function's parameters carry the names of the overload's schema (a trailing underscore
    where Python reserves the name) and receive: MAX ``TensorValue`` for tensors, ``int`` or MAX
    ``Dim`` for SymInt arguments, Python scalars, ``DType`` for dtypes, ``DeviceRef`` for devices,
    lists of these. It returns one ``TensorValue`` or a tuple of them, as the schema returns. For an
    operator of your own that writes to arguments, their new values follow, in the schema's order.

    Args:
        targets: Overloads, or packets (each functional overload whose arguments fit).
        supports: Takes any of the schema's arguments by name, tensors as fake tensors, and
            returns ``None`` or a ``Refusal``.
        override: Replace an existing lowering instead of raising.
        native16: The function takes float16 and bfloat16 on CPU as they are (data movement);
            otherwise it sees float32 and its results are rounded.
        kernels: The library whose kernels the function calls through ``ops.custom``: "base",
            the name of another family's file in ``mojo_kernels``, or Mojo sources of your own (a
            file, or the folder of a package); several of these; or a function of the arguments, as
            ``supports``, that tells them.
        bank: The function calls matrix products of the bank (``ops/matmul.py``) on CPU.
        sizes_from_data: The function builds results of sizes that depend on data
            (``ops/common/data_sizes.py``); otherwise such nodes are refused.
        random: The function draws random numbers (``convert.context.random_stream``).

    Raises:
        RegistrationError: An overload has a lowering already, or is one of torch's that mutates an
            argument or writes to ``out=``; or the function's parameters do not fit the schema.
    """

    def decorate(function: F) -> F:
        for target in targets:
            for op in _overloads(target, function):
                _check_overload(op)
                if op._schema.is_mutable:
                    op = counterpart(op)
                parameters = _fit(op, function)
                lowering = Lowering(
                    op,
                    function,
                    supports,
                    parameters,
                    native16,
                    kernels,
                    bank,
                    sizes_from_data,
                    random,
                )
                registry.add(lowering, override)
        return function

    return decorate


def _overloads(target: Any, function: Callable[..., Any]) -> list[OpOverload]:
    if isinstance(target, OpOverload):
        return [target]
    if not isinstance(target, OpOverloadPacket):
        raise RegistrationError(
            f"map_to takes ATen overloads such as torch.ops.aten.gelu.default, not {target!r}."
        )
    candidates = [getattr(target, name) for name in target.overloads()]
    functional = [op for op in candidates if not op._schema.is_mutable]
    if not functional:
        _check_overload(candidates[0])
    fitting = [op for op in functional if _misfit(op, function) is None]
    if not fitting:
        _fit(functional[0], function)
    return fitting


def _check_overload(op: OpOverload) -> None:
    wrong = misfit(op) if op._schema.is_mutable else None
    if wrong is not None:
        raise RegistrationError(f"{op} writes to an argument: {op._schema}", wrong)


def argument_name(name: str) -> str:
    """The parameter name that a lowering uses for a schema argument."""
    return name + "_" if name in _RESERVED else name


def _misfit(op: OpOverload, function: Callable[..., Any]) -> str | None:
    parameters = inspect.signature(function).parameters
    schema = [argument_name(a.name) for a in op._schema.arguments]
    unknown = [
        p.name
        for p in parameters.values()
        if p.name not in schema and p.default is inspect.Parameter.empty
    ]
    if unknown:
        return f"has parameters that the schema does not: {', '.join(unknown)}"
    missing = [n for n in schema if n not in parameters and n not in IGNORED_ARGUMENTS]
    if missing:
        return f"lacks the schema's arguments: {', '.join(missing)}"
    return None


def _fit(op: OpOverload, function: Callable[..., Any]) -> frozenset[str]:
    misfit = _misfit(op, function)
    if misfit:
        raise RegistrationError(
            f"The lowering {function.__qualname__} of {op} {misfit}.", f"Schema: {op._schema}"
        )
    return frozenset(inspect.signature(function).parameters)


def bind(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call by schema name, defaults filled in."""
    bound: dict[str, Any] = {}
    for i, argument in enumerate(op._schema.arguments):
        name = argument_name(argument.name)
        if not argument.kwarg_only and i < len(args):
            bound[name] = args[i]
        elif argument.name in kwargs:
            bound[name] = kwargs[argument.name]
        else:
            bound[name] = argument.default_value if argument.has_default_value() else None
    return bound


def is_registered(op: object) -> bool:
    """Whether an FX target has a lowering."""
    return isinstance(op, OpOverload) and op in registry
