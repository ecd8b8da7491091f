"""The texts of new files, and of what is added to files that are there."""

from __future__ import annotations

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.operator_tools.decomposition import example
from torch_max_backend.operator_tools.signature import (
    PARAMETERS,
    SCALARS,
    Argument,
    arguments,
    docstring,
    parameters,
    returned,
)

# The comment that marks the line to replace.
LOWERING_MARK = "# write the lowering here"
KERNEL_MARK = "# write the kernel here"


def stub(op: OpOverload, target: str, name: str) -> str:
    """A lowering that raises until it is written.

    Args:
        op: The operator.
        target: The expression that names it.
        name: The function's.
    """
    return f'''

@map_to({target})
def {name}({parameters(op)}) -> {returned(op)}:
{docstring(op)}
    raise NotImplementedError("{op}")  {LOWERING_MARK}
'''


def calling(op: OpOverload, target: str, name: str, kernel: str) -> str:
    """A lowering that calls a kernel of its own, element by element."""
    given = arguments(op)
    tensors = [a.name for a in given if a.kind == "Tensor"]
    scalars = [
        f"ops.constant({a.name}, DType.{SCALARS[a.kind].lower()}, DeviceRef.CPU())"
        for a in given
        if a.kind in SCALARS
    ]
    passed = [f'"tmb_{kernel}"', "*values"]
    passed += [f"scalars=({', '.join(scalars)},)"] if scalars else []
    passed += [f"{a.name}={a.name}" for a in given if a.kind in PARAMETERS]
    return f"""

@map_to({target}, kernels="elementwise.{kernel}")
def {name}({parameters(op)}) -> TensorValue:
{docstring(op)}
    values = operands(opmath(expected().dtype), {", ".join(tensors)})
    return elementwise({", ".join(passed)})
"""


def mojo(op: OpOverload, kernel: str) -> str:
    """The kernel: one struct, which MAX's graphs and tables of steps both call."""
    given = arguments(op)
    tensors = [_mojo_name(a) for a in given if a.kind == "Tensor"]
    scalars = [(_mojo_name(a), SCALARS[a.kind]) for a in given if a.kind in SCALARS]
    chosen = [(_mojo_name(a), PARAMETERS[a.kind]) for a in given if a.kind in PARAMETERS]
    vector = "SIMD[dtype, width]"
    settings = "".join(f"{name}: {kind}, " for name, kind in chosen)
    between = ", ".join(["dtype: DType", "width: SIMDLength", "//", *_declared(chosen)])
    takes = ", ".join([*(f"{t}: {vector}" for t in tensors), *_declared(scalars)])
    captured = ", ".join(f"var {n}" for n in [*tensors, *(n for n, _ in scalars)])
    call = ", ".join([*(f"{t}.load[width](at)" for t in tensors), *(n for n, _ in scalars)])
    square = f"[{', '.join(f'{n}={n}' for n, _ in chosen)}]" if chosen else ""
    inputs = "".join(f"        {t}: InputTensor[dtype=dtype, rank=rank, ...],\n" for t in tensors)
    numbers = "".join(f"        {name}: {kind},\n" for name, kind in scalars)
    return f'''"""The kernel of {kernel}, element by element."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext

from ..core.each import foreach


@always_inline
def _{kernel}[
    {between}
]({takes}) -> {vector}:
    return {tensors[0]}  # of {kernel}: the function, of vectors


@register("tmb_{kernel}")
struct {_struct(kernel)}:
    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, {settings}target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
{inputs}{numbers}        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {{{captured}}} -> {vector}:
            return _{kernel}{square}({call})

        foreach[target=target](body, output, ctx)
        raise Error("{kernel} has no kernel yet")  {KERNEL_MARK}: in the function above
'''


def _declared(named: list[tuple[str, str]]) -> list[str]:
    return [f"{name}: {kind}" for name, kind in named]


def _mojo_name(argument: Argument) -> str:
    """An argument's name, which may not be one of Mojo's words or of the template's."""
    taken = ("self", "from_", "lambda_", "output", "ctx", "at", "width", "out", "ref", "mut", "var")
    return (
        {"self": "x"}.get(argument.name, f"given_{argument.name}")
        if (argument.name in taken)
        else argument.name
    )


def _struct(kernel: str) -> str:
    return "".join(part.title() for part in kernel.split("_"))


def gpu_graph(op: OpOverload, kernel: str) -> str:
    """A file of ``tests/gpu/kernels/``: the graph that compiles the kernel for GPUs."""
    given = arguments(op)
    values = ["x"] * sum(a.kind == "Tensor" for a in given)
    numbers = ["1" if a.kind == "int" else "0.5" for a in given if a.kind in SCALARS]
    values += [f"*numbers({', '.join(numbers)})"] if numbers else []
    chosen = {a.name: {"bool": True, "str": "none"}[a.kind] for a in given if a.kind in PARAMETERS}
    more = f", {chosen!r}" if chosen else ""
    imported = "from tests.gpu.kernels.support import numbers\n\n" if numbers else ""
    return f'''"""{kernel}, element by element."""

from __future__ import annotations

from max.graph import TensorValue, ops

{imported}
def {kernel}(x: TensorValue) -> list[TensorValue]:
    results = ops.custom("tmb_{kernel}", x.device, [{", ".join(values)}], [x.type]{more})
    return [r.tensor for r in results]


LIBRARIES = ("elementwise.{kernel}",)
BUILDERS = ({kernel},)
'''


def test_file(op: OpOverload, target: str, name: str) -> str:
    """A test beside eager PyTorch, for an operator that torch's database has no samples of."""
    given, values = arguments(op), example(op)
    tensors = [a.name for a in given if a.kind == "Tensor"]
    words = [_passed(a, values.get(a.name)) for a in given]
    takes = ", ".join(f"{t}: Tensor" for t in tensors)
    call = f"{target}({', '.join(w for w in words if w)})"
    random = ", ".join(["torch.randn(3, 5)"] * len(tensors))
    special = ", ".join(["SPECIAL"] * len(tensors))
    return f'''"""{op}, of which torch's operator database has no samples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -2.5])


def called({takes}) -> Any:
    """Arguments that are no tensors have made-up values: choose those that matter."""
    return {call}


CASES = {{
    "random": (called, [{random}]),
    "special": (called, [{special}]),
}}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import both_ways

    torch.manual_seed(0)
    return both_ways(CASES)


@compile_group("{name}")
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("case", CASES)
def test_values_are_torchs(case: str, kind: str) -> None:
    _programs()[f"{{case}}-{{kind}}"].assert_agrees(equal_nan=True)
'''


def _passed(argument: Argument, value: object) -> str:
    """An argument in the call of a test; "" for what may be left out."""
    if argument.kind == "Tensor":
        text = argument.name
    elif argument.kind == "List[Tensor]":
        text = "[]"
    elif value is None and argument.kind.startswith("Optional["):
        return f"{argument.name}=None" if argument.keyword else "None"
    else:
        text = repr(value)
    return f"{argument.name}={text}" if argument.keyword else text
