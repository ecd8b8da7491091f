"""Operators of complex numbers that take real ones as well, against eager PyTorch on torch's own
samples."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

# Names of op_db, in groups that are compiled together.
GROUPS = {
    "arithmetic": (
        "add", "sub", "rsub", "mul", "div.no_rounding_mode", "true_divide", "reciprocal", "neg",
        "positive", "square", "pow", "__radd__", "__rmul__", "__rdiv__", "__rpow__", "addcmul",
        "addcdiv", "sum", "mean", "cumsum", "var", "std", "eq", "ne", "isnan", "isinf",
        "logical_not", "logical_and", "logical_or", "logical_xor", "any", "all",
    ),
    "functions": (
        "abs", "sgn", "exp", "exp2", "expm1", "log", "log2", "log10", "sqrt", "rsqrt", "sin",
        "cos", "tan", "sinh", "cosh", "tanh", "sigmoid",
        "nn.functional.silu.complex", "linalg.vector_norm",
        "mm", "bmm", "matmul", "addmm", "addmv", "addr", "baddbmm", "mv", "dot", "vdot", "outer",
        "linalg.multi_dot", "einsum", "tensordot", "kron", "trace", "cross",
    ),
    "movement": (
        "cat", "stack", "reshape", "view", "permute", "transpose", "t", "expand", "squeeze",
        "unsqueeze", "split", "chunk", "unbind", "flip", "roll", "rot90", "repeat", "tile", "tril",
        "triu", "diagonal", "diag_embed", "unfold", "__getitem__", "index_select", "gather",
        "index_put", "index_add", "index_fill", "scatter", "scatter_add",
        "masked_fill", "masked_scatter", "where", "take_along_dim",
        "nn.functional.pad.constant", "nn.functional.pad.reflect", "clone", "contiguous", "to",
        "full", "full_like", "zeros", "zeros_like", "ones_like", "new_full", "fill", "float",
        "double", "bool", "as_strided", "meshgrid.variadic_tensors", "atleast_2d",
    ),
}  # fmt: skip


@lru_cache(maxsize=1)
def _compiled(group: str) -> dict[str, list[Program]]:
    from tests.conformance.samples import programs
    from tests.conformance.together import compile_together

    by_name = {}
    for i, name in enumerate(GROUPS[group]):
        dynamic = i % 2 == 1
        found = [*programs(name, torch.complex64, limit=4, dynamic=dynamic)][-1:]
        if i % 8 == 0:
            found += programs(name, torch.complex128, limit=1, dynamic=not dynamic)
        by_name[name] = found
    compile_together([p for found in by_name.values() for p in found])
    return by_name


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param(
            group,
            name,
            id=name,
            marks=[compile_group(f"complex {group}", 2)]
            + [pytest.mark.thorough] * (group != "arithmetic"),
        )
        for group, names in GROUPS.items()
        for name in names
    ],
)
def test_agrees_with_eager(group: str, name: str) -> None:
    from tests.conformance.reference import complaint

    programs = _compiled(group)[name]
    assert programs
    failures = []
    for program in programs:
        found = complaint(program)
        if found:
            failures.append(f"{program.name}: {found}")
    repeat = f"python -m tests.conformance {name} --dtypes complex64"
    assert not failures, "\n\n".join([*failures, f"Repeat with: {repeat}"])
