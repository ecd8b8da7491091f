"""A lowering's Python signature, and a kernel's in Mojo, from an operator's schema."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from torch_max_backend.compat.operators import Argument as SchemaArgument
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.registry.lowerings import IGNORED_ARGUMENTS, argument_name

# What an argument of the schema arrives as, and where that name is imported from.
_HINTS = {
    "Tensor": "TensorValue",
    "int": "int",
    "SymInt": "int | Dim",
    "float": "float",
    "number": "int | float",
    "bool": "bool",
    "str": "str",
    "ScalarType": "DType",
    "Device": "DeviceRef",
    "Generator": "torch.Generator",
}
_SOURCES = {"TensorValue": "max.graph", "Dim": "max.graph", "DeviceRef": "max.graph"}
_SOURCES |= {"DType": "max.dtype"}

# What a kernel takes for a number, and what of a schema is a compile-time parameter.
SCALARS = {"float": "Float64", "number": "Float64", "int": "Int64"}
PARAMETERS = {"bool": "Bool", "str": "StaticString"}


@dataclass(frozen=True)
class Argument:
    """An argument of a schema.

    Attributes:
        name: As a lowering has it.
        kind: As the schema has it, such as "Tensor", "Optional[int]", "List[SymInt]".
        keyword: Whether it is given by name only.
    """

    name: str
    kind: str
    keyword: bool

    @property
    def hint(self) -> str:
        """The type hint of a lowering's parameter."""
        return _hint(self.kind)


def arguments(op: OpOverload) -> list[Argument]:
    """The arguments that a lowering has to take."""
    return [
        Argument(argument_name(a.name), _kind(op, a), a.kwarg_only)
        for a in op._schema.arguments
        if a.name not in IGNORED_ARGUMENTS
    ]


def _kind(op: OpOverload, argument: SchemaArgument) -> str:
    # `real_type` tells dtypes and devices from numbers, but not symbolic sizes: only the text does.
    kind = str(argument.real_type)
    symbolic = re.search(rf"\bSymInt\S* {argument.name}\b", str(op._schema))
    return re.sub(r"\bint\b", "SymInt", kind) if symbolic else kind


def _hint(kind: str) -> str:
    if kind.startswith("Optional["):
        return f"{_hint(kind[len('Optional[') : -1])} | None"
    if kind.startswith("List["):
        return f"list[{_hint(kind[len('List[') : -1])}]"
    return _HINTS.get(kind, "object")


def returned(op: OpOverload) -> str:
    """The type hint of what a lowering returns."""
    kinds = [_hint(str(r.real_type)) for r in op._schema.returns]
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"


def parameters(op: OpOverload) -> str:
    """The parameters of a lowering, as Python writes them."""
    found: list[str] = []
    keywords = False
    for argument in arguments(op):
        if argument.keyword and not keywords and found:
            found.append("*")
            keywords = True
        found.append(f"{argument.name}: {argument.hint}")
    return ", ".join(found)


def needed(op: OpOverload) -> dict[str, set[str]]:
    """The names that the hints of a lowering use, by the module that has them."""
    text = f"{parameters(op)} {returned(op)}"
    found: dict[str, set[str]] = {}
    for name, source in _SOURCES.items():
        if name in text.replace("[", " ").replace("]", " ").replace(",", " ").split():
            found.setdefault(source, set()).add(name)
    return found


def docstring(op: OpOverload) -> str:
    """The schema, as the docstring of a lowering, indented."""
    text = f'"""{str(op._schema).partition("::")[2]}"""'
    lines = textwrap.wrap(text, 94, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(lines), "    ")


def not_elementwise(op: OpOverload) -> str:
    """Why no kernel of tensors of one shape can be written from the schema; "" if one can."""
    kinds = [str(r.real_type) for r in op._schema.returns]
    if kinds != ["Tensor"]:
        return f"it returns {', '.join(kinds) or 'nothing'}"
    given = arguments(op)
    for argument in given:
        if argument.kind not in ("Tensor", *SCALARS, *PARAMETERS):
            return f"its argument {argument.name} is {argument.kind}"
    return "" if any(a.kind == "Tensor" for a in given) else "it takes no tensor"
