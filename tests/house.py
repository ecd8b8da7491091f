"""Counts what the project's rules bound: file and function lengths, docstrings, private names.

    python -m tests.house [--list]

Prints a count for each rule; ``--list`` prints the places too.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "torch_max_backend"
TESTS, BENCHMARKS = ROOT / "tests", ROOT / "benchmarks"

PYTHON_LINES, MEDIAN_LINES, MOJO_LINES, FUNCTION_LINES = 400, 110, 600, 60

# Names of ATen's own operators that begin with an underscore are part of its schema.
_OPERATORS = re.compile(r"\b(?:aten|prims|ops|mkldnn|quantized|torchvision|_c10d_functional)\._\w+")


def long_files() -> Iterator[str]:
    """Python files above 400 lines, and Mojo files above 600."""
    for bound, paths in (
        (PYTHON_LINES, [p for f in (PACKAGE, TESTS, BENCHMARKS) for p in f.rglob("*.py")]),
        (MOJO_LINES, (ROOT / "mojo_kernels").rglob("*.mojo")),
    ):
        for path in sorted(paths):
            count = path.read_text().count("\n")
            if count > bound:
                yield f"{path.relative_to(ROOT)}: {count} lines"


def too_large_as_a_rule() -> Iterator[str]:
    """The median of the package's files, if it is above 110 lines."""
    median = statistics.median(p.read_text().count("\n") for p in PACKAGE.rglob("*.py"))
    if median > MEDIAN_LINES:
        yield f"half of the files have more than {median:.0f} lines"


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text())


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def long_functions() -> Iterator[str]:
    """Functions above 60 lines, their docstrings aside."""
    for path, tree in _trees():
        for function in _functions(tree):
            count = (function.end_lineno or 0) - function.lineno + 1
            first = function.body[0]
            if ast.get_docstring(function) is not None:
                count -= (first.end_lineno or 0) - first.lineno + 1
            if count > FUNCTION_LINES:
                yield f"{path}:{function.lineno}: {function.name} has {count} lines"


def without_docstrings() -> Iterator[str]:
    """Public functions of modules, without a docstring."""
    for path, tree in _trees():
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                yield f"{path}:{node.lineno}: {node.name}"


def private_names() -> Iterator[str]:
    """Private modules and attributes of torch and MAX that are used outside ``compat/``."""
    for path, tree in _trees():
        if "compat" in path.parts:
            continue
        for node in ast.walk(tree):
            yield from (f"{path}:{node.lineno}: {name}" for name in _private(node))


def _private(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and _foreign(node.module or ""):
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if re.search(r"\._(?!_)", name):
                yield name
    elif isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
        text = ast.unparse(node)
        if _foreign(text) and not _OPERATORS.search(text):
            yield text


def _foreign(name: str) -> bool:
    return name.split(".")[0] in ("torch", "max", "functorch", "mojo")


RULES = {
    "files that are too long": long_files,
    f"a median above {MEDIAN_LINES} lines": too_large_as_a_rule,
    f"functions above {FUNCTION_LINES} lines": long_functions,
    "public functions without a docstring": without_docstrings,
    "private names of torch and MAX outside compat/": private_names,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the places")
    given = parser.parse_args()
    for rule, places in RULES.items():
        found = list(places())
        print(f"{len(found):5} {rule}")
        if given.list:
            print(*(f"      {place}" for place in found), sep="\n")


if __name__ == "__main__":
    main()
