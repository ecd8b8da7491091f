"""Operators of one's own, written in Mojo."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.library import CustomOpDef

from torch_max_backend.compat.operators import OpOverload, parse_schema
from torch_max_backend.errors import RegistrationError
from torch_max_backend.process.temporary_folders import folder_until_exit
from torch_max_backend.registry.functional_counterparts import counterpart, run_by
from torch_max_backend.registry.lowerings import Refusal, argument_name, map_to

_SCALARS = ("float", "int", "bool", "SymInt")


def mojo_op(
    schema: str,
    source: str | Path,
    *,
    fake: Callable[..., Any],
    kernel: str | None = None,
    parameters: Sequence[str] = (),
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> CustomOpDef:
    """Define a PyTorch operator whose body is a Mojo kernel.

    It works in eager PyTorch (compiled when it is first called with new ranks and dtypes) and in
    graphs compiled by this backend, on every device that the kernel supports:

        scale = mojo_op(
            "mine::scale(Tensor x, float by) -> Tensor",
            '''
            from extensibility import InputTensor, OutputTensor, foreach, register
            ...
            @register("mine_scale")
            struct Scale:
                @staticmethod
                def execute[target: StaticString](
                    output: OutputTensor, x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
                    by: Float64, ctx: DeviceContext,
                ) raises: ...
            ''',
            fake=lambda x, by: torch.empty_like(x),
        )

    The kernel's ``execute`` takes an ``OutputTensor`` for each result, then the arguments in the
    schema's order: an ``InputTensor`` for each Tensor, ``Float64``, ``Int64`` and ``Bool`` scalars
    for float, int and bool, then the ``DeviceContext``. Tensors arrive contiguous. What the
    operator writes to, ``Tensor(a!)``, is an ``InputTensor`` with the old values, and one more
    ``OutputTensor`` for the new ones, after those of the results.

    Args:
        schema: ``namespace::name(arguments) -> results``: Tensor, float, int and bool arguments,
            new Tensors or nothing, ``()``, as results.
        source: A Mojo file, the folder of a Mojo package, or Mojo code.
        fake: Called with the arguments, returns empty tensors of the results' shapes and dtypes.
        kernel: The kernel's name in ``@register``; by default ``namespace_name``.
        parameters: Names of scalar arguments that are compile-time parameters of ``execute``.
        backward: The gradient, as for ``torch.library.register_autograd``.
        setup_context: What to keep for ``backward``, as for ``torch.library.register_autograd``.

    Returns:
        The operator.

    Raises:
        RegistrationError: The schema has an argument or a result that a kernel cannot take, or
            there is a ``backward`` for an operator that writes to an argument.
    """
    name, _, rest = schema.partition("(")
    kernel = kernel or name.replace("::", "_")
    path = _sources(source, kernel)

    def eager(*arguments: Any, **keywords: Any) -> Any:
        with torch.no_grad():
            if overload._schema.is_mutable:
                return run_by(overload, _compiled(counterpart(overload)), *arguments, **keywords)
            return _compiled(overload)(*arguments, **keywords)

    given = parse_schema(schema).arguments
    written = {a.name for a in given if a.alias_info is not None and a.alias_info.is_write}
    operator = torch.library.custom_op(name, eager, mutates_args=written, schema=f"({rest}")
    operator.register_fake(fake)
    if backward is not None:
        if operator._opoverload._schema.is_mutable:
            raise RegistrationError(f"{schema} writes to an argument: it has no backward.")
        operator.register_autograd(backward, setup_context=setup_context)
    overload = operator._opoverload
    _check(overload, parameters)
    map_to(
        overload,
        supports=_supports(overload, parameters),
        native16=True,
        kernels=path,
        override=True,
    )(_lowering(overload, kernel, frozenset(parameters)))
    return operator


def _sources(source: str | Path, kernel: str) -> Path:
    if isinstance(source, str) and "\n" in source:
        try:
            path = folder_until_exit() / f"{kernel}.mojo"
            path.write_text(inspect.cleandoc(source) + "\n")
        except OSError as e:
            raise RegistrationError(
                f"The Mojo code of {kernel} could not be written to a temporary file: {e}",
                "Make room, set TMPDIR to a folder on another disk, or keep the code in a file.",
            ) from e
        return path
    path = Path(source).resolve()
    if not path.exists():
        raise RegistrationError(f"There are no Mojo sources at {path}.")
    return path


def _check(op: OpOverload, parameters: Sequence[str]) -> None:
    kinds = {a.name: str(a.type) for a in op._schema.arguments}
    wrong = [f"{kind} {name}" for name, kind in kinds.items() if kind not in ("Tensor", *_SCALARS)]
    wrong += [str(r.type) for r in op._schema.returns if str(r.type) != "Tensor"]
    if wrong:
        raise RegistrationError(
            f"{op._schema}: a Mojo kernel takes Tensor, float, int and bool and returns Tensors, "
            f"not {', '.join(wrong)}."
        )
    unknown = [n for n in parameters if kinds.get(n) not in _SCALARS]
    if unknown:
        raise RegistrationError(
            f"{op._schema} has no scalar arguments {', '.join(unknown)} to be parameters."
        )


def _supports(op: OpOverload, parameters: Sequence[str]) -> Callable[..., Refusal | None]:
    def supports(**arguments: Any) -> Refusal | None:
        if any(isinstance(arguments[argument_name(n)], torch.SymInt) for n in parameters):
            return Refusal("a symbolic number for a compile-time parameter of a Mojo kernel")
        if any(isinstance(v, torch.SymFloat) for v in arguments.values()):
            return Refusal("a symbolic float argument of a Mojo kernel")
        return None

    return _with_signature(supports, op)


def _with_signature(function: Callable[..., Any], op: OpOverload) -> Any:
    names = [argument_name(a.name) for a in op._schema.arguments]
    kind = inspect.Parameter.KEYWORD_ONLY
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, kind) for n in names]
    )
    return function


def _lowering(op: OpOverload, kernel: str, parameters: frozenset[str]) -> Callable[..., Any]:
    """The lowering that calls the kernel; whatever decides what it builds is in its closure, and so
    in the cache key."""
    schema = tuple((a.name, str(a.type)) for a in op._schema.arguments)

    def lowering(**arguments: Any) -> Any:
        from max.graph import TensorType, ops

        from torch_max_backend.convert.context import current_node

        values: list[Any] = []
        settings: dict[str, Any] = {}
        for name, kind in schema:
            value = arguments[argument_name(name)]
            if name in parameters:
                settings[name] = value
            else:
                values.append(value if kind == "Tensor" else _scalar(value, kind))
        specs = current_node().outputs
        types = [TensorType(s.dtype, s.shape, s.device) for s in specs if s is not None]
        results = ops.custom(kernel, types[0].device, values, types, settings)
        return tuple(r.tensor for r in results)

    lowering.__name__ = kernel
    lowering.__qualname__ = lowering.__qualname__.replace(".lowering", f".{kernel}")
    return _with_signature(lowering, op)


def _scalar(value: Any, kind: str) -> Any:
    from max.dtype import DType
    from max.graph import DeviceRef, Dim, ops

    if isinstance(value, Dim):
        return ops.reshape(ops.shape_to_tensor([value]), [])
    dtype = {"float": DType.float64, "bool": DType.bool}.get(kind, DType.int64)
    return ops.constant(value, dtype, DeviceRef.CPU())


@cache
def _compiled(op: OpOverload) -> Callable[..., Any]:
    from torch_max_backend.backend import max_backend

    def call(*arguments: Any, **keywords: Any) -> Any:
        return op(*arguments, **keywords)

    # In eager PyTorch the operator would call this again.
    options = {"fallback": "error"}
    return torch.compile(call, backend=max_backend, fullgraph=True, options=options)
