"""What is known of the operators that a name or a pattern stands for."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from torch_max_backend.compat.operators import OpOverload, has_kernel, operator_names
from torch_max_backend.graph.capability import missing
from torch_max_backend.graph.decompositions.table import decomposition_table
from torch_max_backend.graph.passes.complex_rules import rules
from torch_max_backend.operator_tools.coverage import Fate, fates
from torch_max_backend.operator_tools.decomposition import decomposition
from torch_max_backend.operator_tools.reasons import MISSING, reason
from torch_max_backend.registry.lowerings import registry

_PACKAGES = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Found:
    """Overloads that a name stands for.

    Attributes:
        fates: What becomes of each.
        similar: Names like it, if there is none.
    """

    fates: list[Fate]
    similar: list[str]


def find(name: str) -> Found:
    """The overloads of a name: ``aten.gelu.default``, ``aten.gelu``, ``gelu``, ``*gelu*``."""
    wanted = name.removeprefix("torch.ops.").replace("::", ".")
    listed = [_full(n) for n in sorted(operator_names())]
    chosen = [n for n in listed if any(fnmatchcase(w, wanted) for w in _ways(n))]
    if not chosen:
        known = sorted({w for n in listed for w in _ways(n)})
        return Found([], difflib.get_close_matches(wanted, known, 5, 0.7))
    bases = {n.rpartition(".")[0] for n in chosen}
    # All overloads of an operator, and of its functional namesake: what becomes of one may depend
    # on the others.
    bases |= {n.removesuffix("_") for n in bases}
    together = [op for n in listed if n.rpartition(".")[0] in bases and (op := _overload(n))]
    return Found([f for f in fates(together) if str(f.op) in chosen], [])


def _full(name: str) -> str:
    """A registered name as ``aten.add.Tensor``."""
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return f"{space}.{base}.{overload or 'default'}"


def _ways(full: str) -> Iterator[str]:
    """What an overload may be called."""
    base = full.rpartition(".")[0]
    yield from (full, base)
    if full.startswith("aten."):
        yield from (full.removeprefix("aten."), base.removeprefix("aten."))


def _overload(full: str) -> OpOverload | None:
    space, base, overload = full.split(".", 2)
    packet = getattr(getattr(torch.ops, space), base, None)
    return getattr(packet, overload, None)


def describe(fate: Fate) -> list[str]:
    """Lines that tell what becomes of an overload."""
    op, outcome = fate.op, fate.outcome
    if op._schema.is_mutable and outcome in ("decomposed", "functionalized"):
        outcome = "functionalized"
        told = ["graphs hold a functional overload instead"]
    elif outcome == "lowered":
        told = list(_lowered(op))
    elif outcome == "decomposed":
        told = list(_decomposed(op))
    else:
        outcome = "missing"
        told = list(_missing(op))
    return [f"{op}: {outcome}", *(f"    {line}" for line in [str(op._schema), *told])]


def _missing(op: OpOverload) -> Iterator[str]:
    yield f"refused: {missing(op).reason}"
    why = reason(op)
    if op.namespace == "aten" and why is not MISSING:
        text = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", why.text)  # links of the page
        yield f"{why.title}: {text}"


def _lowered(op: OpOverload) -> Iterator[str]:
    lowering = registry[op]
    yield f"by {lowering.function.__qualname__.rpartition('.')[2]}, {place(lowering.function)}"
    if callable(lowering.kernels):
        yield f"Mojo kernels: which, its arguments decide ({place(lowering.kernels)})"
    elif libraries := lowering.libraries({}):
        yield f"Mojo kernels: {', '.join(map(str, libraries))}"
    also = {
        "matrix products of the bank": lowering.bank,
        "sizes that depend on data": lowering.sizes_from_data,
        "random numbers": lowering.random,
        "16-bit floats as they are on CPU": lowering.native16,
    }
    if any(also.values()):
        yield f"with {', '.join(words for words, is_so in also.items() if is_so)}"
    if lowering.supports is not None:
        yield f"may be refused ({place(lowering.supports)}):"
        yield from (f"    {text}" for text in refusals(lowering.supports))


def _decomposed(op: OpOverload) -> Iterator[str]:
    function = decomposition_table().get(op)
    if function is not None:
        yield f"by {place(function)}"
    elif has_kernel(op, "CompositeImplicitAutograd"):
        yield "by torch's definition, before a graph reaches the backend"
    if op in rules:
        yield "complex numbers: by torch_max_backend.graph.passes.complex_rules"
    found = decomposition(op)
    if found is None:
        return
    lacking = {o for o in found.operators if _lacks(o)}
    names = [
        f"{o}{f' x{n}' if n > 1 else ''}{' (missing)' if o in lacking else ''}"
        for o, n in found.operators.items()
    ]
    yield f"into {', '.join(names) or 'nothing'}"
    yield f"    for {found.arguments or 'no arguments'}; others may take another way"


def _lacks(op: OpOverload) -> bool:
    """Whether nothing converts an operator. One that takes no tensor is computed ahead."""
    (fate,) = fates([op])
    takes = any("Tensor" in str(a.type) for a in op._schema.arguments)
    return takes and fate.outcome == "refused"


def place(function: Callable[..., Any]) -> str:
    """The file and line of a function; files of installed packages from the package's folder on."""
    plain = _plain(function)
    try:
        file, line = inspect.getsourcefile(plain), inspect.getsourcelines(plain)[1]
    except (OSError, TypeError):
        return getattr(plain, "__qualname__", repr(plain))
    path = Path(file or "")
    for folder in (_PACKAGES, Path(torch.__file__).parents[1]):
        if path.is_relative_to(folder):
            return f"{path.relative_to(folder)}:{line}"
    return f"{path}:{line}"


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without what wraps it."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def refusals(supports: Callable[..., Any], depth: int = 2) -> list[str]:
    """The reasons that the source of a check names, and functions that it calls, with what is
    filled in in braces."""
    plain = _plain(supports)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(plain)))
    except (OSError, SyntaxError, TypeError):
        return []
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", "")
        if name == "Refusal" and node.args:
            found |= dict.fromkeys(_texts(node.args[0], plain.__globals__))
        elif depth and inspect.isfunction(helper := plain.__globals__.get(name)):
            found |= dict.fromkeys(refusals(helper, depth - 1))
    return list(found)


def _texts(given: ast.expr, names: Mapping[str, Any]) -> list[str]:
    """The text that an expression is, with what an f-string fills in in braces; none if only the
    arguments of a call decide it."""
    if isinstance(given, ast.Constant):
        return [str(given.value)]
    if isinstance(given, ast.JoinedStr):
        return [ast.unparse(given).removeprefix("f").strip("\"'")]
    value = names.get(given.id) if isinstance(given, ast.Name) else None
    return [value] if isinstance(value, str) else []
