"""The structure of arguments and results (pytrees) as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from torch_max_backend.compat.tracing import pytree
from torch_max_backend.errors import PackageError

# What contexts name, and torch would import to read them.
_FACTORY = "default_factory_module"
_ENUM = "__enum__"


def dumped(spec: pytree.TreeSpec, what: str) -> Any:
    """A structure as JSON can hold it.

    Args:
        spec: The structure.
        what: Whose it is, for the message.

    Raises:
        PackageError: It has a type without a name for this, or keys that JSON does not know.
    """
    try:
        found = json.loads(pytree.treespec_dumps(spec))
        if pytree.treespec_loads(json.dumps(found)) == spec:
            return found
        reason = "JSON changes its keys"
    except (NotImplementedError, TypeError, ValueError, AttributeError) as e:
        reason = str(e)
    raise PackageError(
        f"The structure of {what} cannot be packaged: {reason}",
        "Export a module that takes and returns tuples, lists and dicts with texts as keys.",
    )


def loaded(found: Any, what: str) -> pytree.TreeSpec:
    """The structure that ``dumped`` was given. Imports nothing.

    Raises:
        PackageError: It has a type that nothing has registered in this process.
        ValueError: It is no structure.
    """
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError("a structure is wrong")
    pending = [found[1]]
    while pending:
        node = pending.pop()
        kind = node["type"]
        if kind is not None and kind not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            raise _unknown(kind, what)
        _check_context(node["context"], what)
        pending += node["children_spec"]
    return pytree.treespec_loads(json.dumps(found))


def _check_context(context: Any, what: str) -> None:
    """Raise if torch would import a module to read a node's context."""
    if isinstance(context, str):
        try:
            context = json.loads(context)
        except ValueError:
            return  # a name, for what the type registered to read it
    pending = [context]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            modules = [value[_FACTORY]] if _FACTORY in value else []
            if _ENUM in value:
                modules.append(str(value["fqn"]).partition(":")[0])
            for module in modules:
                if module not in sys.modules:
                    raise _unknown(module, what)
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def _unknown(name: str, what: str) -> PackageError:
    return PackageError(
        f"The package's {what} hold {ascii(name)[:100]}, which this process does not know.",
        "Import the module that defines it before the package is loaded, or export a module that "
        "takes and returns tuples, lists and dicts.",
    )
