"""Writes what a new lowering begins with into a checkout."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.convert.context import expected
from torch_max_backend.operator_tools import templates
from torch_max_backend.operator_tools.coverage import Fate
from torch_max_backend.operator_tools.lookup import find, place
from torch_max_backend.operator_tools.signature import SCALARS, arguments, needed, not_elementwise
from torch_max_backend.registry.lowerings import map_to, registry

_OPS = "torch_max_backend/ops"
_FAMILIES = "tests/conformance/families"
# Where operators of these beginnings are.
_BY_BEGINNING = {"special_": "special", "linalg_": "linalg", "fft_": "fft", "bitwise_": "bitwise"}


class ScaffoldError(Exception):
    """Nothing was written; the message says why."""


@dataclass
class Written:
    """What was written.

    Attributes:
        op: The operator.
        root: The checkout.
        texts: The new texts of files, by path from there.
        notes: What to know about each.
        steps: Commands that come next.
    """

    op: OpOverload
    root: Path
    texts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def report(self) -> str:
        """What was written, and what to do next."""
        lines = [f"{self.op}: {self.op._schema}", "", "Written:"]
        lines += [f"    {note}" for note in self.notes]
        lines += ["", "It fails at the marked line until you have replaced that:"]
        lines += [f"    {step}" for step in self.steps]
        lines += [
            "",
            "CONTRIBUTING.md (Add an operator) and .claude/skills/aten-ops tell the rest.",
        ]
        return "\n".join(lines) + "\n"

    def text(self, path: str) -> str:
        """A file as it will be; "" if there is none."""
        file = self.root / path
        return self.texts.get(path) or (file.read_text() if file.is_file() else "")


def checkout() -> Path:
    """The checkout that this package is imported from.

    Raises:
        ScaffoldError: It is an installed package.
    """
    root = Path(__file__).resolve().parents[2]
    if not all((root / part).is_dir() for part in (_OPS, _FAMILIES, "mojo_kernels")):
        raise ScaffoldError(
            "`ops new` adds files to a checkout of the repository, and this package is installed. "
            "Clone it, and run the command there. For operators of your own outside of it, use "
            "torch_max_backend.map_to or mojo_op."
        )
    return root


def scaffold(root: Path, name: str, *, family: str | None = None, kernel: bool = False) -> Written:
    """Write the stub of a lowering, and its test, into a checkout.

    Args:
        root: The checkout.
        name: The operator's, ``aten.hardtanh`` or with the overload.
        family: The file of lowerings, without ".py"; by default that of its namesakes.
        kernel: With a Mojo kernel of its own.

    Raises:
        ScaffoldError: There is no such operator, it has a lowering, or cannot have such a kernel.
    """
    fate = _free(name)
    op = fate.op
    if kernel and (problem := not_elementwise(op)):
        raise ScaffoldError(
            f"{op} has no element-wise kernel that could be written from its schema: {problem}. "
            "Leave --kernel out and follow .claude/skills/mojo-gpu-kernels."
        )
    family = family or _family(op)
    written = Written(op, root)
    short = op._schema.name.partition("::")[2].strip("_")
    _add_lowering(written, family, short, kernel)
    rows = _samples(op)
    if rows:
        _add_rows(written, family, rows)
        written.steps.append(f"uv run python -m tests.conformance {' '.join(rows)}")
    else:
        _add_test(written, short)
        written.steps.append(f"uv run pytest tests/ops/test_{short}.py")
    if kernel:
        _add_kernel(written, short)
        written.steps.append("uv run mojo precompile mojo_kernels -o /tmp/kernels.mojoc")
    if fate.outcome == "decomposed":
        written.notes.append("torch decomposes it: with a lowering, graphs hold it whole")
    _write(written)
    return written


def _free(name: str) -> Fate:
    """The one functional overload of a name that has no lowering."""
    found = find(name)
    if not found.fates:
        similar = f" Similar names: {', '.join(found.similar)}." if found.similar else ""
        raise ScaffoldError(f"There is no operator {name}.{similar}")
    functional = [f for f in found.fates if not f.op._schema.is_mutable]
    if not functional:
        raise ScaffoldError(f"{name} writes to its arguments: lower its functional namesake.")
    free = [f for f in functional if f.outcome != "lowered"]
    if not free:
        where = place(registry[functional[0].op].function)
        raise ScaffoldError(f"{functional[0].op} has a lowering already: {where}")
    if len(free) > 1:
        listed = ", ".join(str(f.op) for f in free)
        raise ScaffoldError(f"{name} is several overloads, name one: {listed}")
    return free[0]


def _family(op: OpOverload) -> str:
    """The file that has the operator's other overloads, or its gradient, or its like."""
    base = op._schema.name.partition("::")[2]
    core = re.sub(r"_(backward|forward|copy)$", "", base.strip("_"))
    for other, lowering in registry.items():
        named = other._schema.name.partition("::")[2]
        if re.sub(r"_(backward|forward|copy)$", "", named.strip("_")) == core:
            return lowering.function.__module__.rpartition(".")[2]
    for beginning, family in _BY_BEGINNING.items():
        if base.startswith(beginning):
            return family
    raise ScaffoldError(f"Which file of {_OPS} is {op} for? Say --family FILE, such as unary.")


def _add_lowering(written: Written, family: str, short: str, kernel: bool) -> None:
    op, path = written.op, f"{_OPS}/{family}.py"
    if not re.fullmatch(r"[a-z]\w*", family):
        raise ScaffoldError(f"{family!r} cannot be the name of a file of {_OPS}")
    old = written.text(path) or (
        f'"""{family.replace("_", " ").capitalize()}."""\n\n'
        "from __future__ import annotations\n\nimport torch\n\naten = torch.ops.aten\n"
    )
    tree = ast.parse(old)
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    name = short if op._overloadname == "default" else f"{short}_{op._overloadname.lower()}"
    while name in defined:
        name += "_"
    names = needed(op)
    names.setdefault(map_to.__module__, set()).add("map_to")
    target = f"torch.ops.{op}" if op.namespace != "aten" or "aten = " not in old else str(op)
    if kernel:
        from torch_max_backend.ops.common.elementwise import elementwise
        from torch_max_backend.ops.common.promotion import operands, opmath

        for function in (expected, elementwise, operands, opmath):
            names.setdefault(function.__module__, set()).add(function.__name__)
        if any(a.kind in SCALARS for a in arguments(op)):
            names.setdefault("max.dtype", set()).add("DType")
            names["max.graph"] |= {"DeviceRef", "ops"}
        added = templates.calling(op, target, name, short)
    else:
        added = templates.stub(op, target, name)
    written.texts[path] = _with_imports(old, tree, names) + added
    written.notes.append(f"{path}: the lowering `{name}`")


def _with_imports(text: str, tree: ast.Module, names: dict[str, set[str]]) -> str:
    """A file's text with imports of names that it does not have, after its last import."""
    imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    known = {a.asname or a.name for n in imports for a in n.names}
    lines = text.splitlines()
    new = [
        f"from {module} import {', '.join(sorted(wanted - known))}"
        for module, wanted in sorted(names.items())
        if wanted - known
    ]
    new += [] if "torch" in known else ["import torch"]
    last = max((n.end_lineno or 0 for n in imports), default=0)
    return "\n".join([*lines[:last], *new, *lines[last:]]) + "\n"


def _samples(op: OpOverload) -> list[str]:
    """The entries of torch's operator database that call an operator."""
    if op.namespace != "aten":
        return []
    try:
        from torch_max_backend.compat.samples import op_db
    except ImportError as e:
        raise ScaffoldError(f"The development environment is needed (`uv sync`): {e}") from e
    base = op._schema.name.partition("::")[2]
    return [
        f"{o.name}.{o.variant_test_name}" if o.variant_test_name else o.name
        for o in op_db
        if base in (o.aten_name, o.name.replace(".", "_"))
    ]


def _add_rows(written: Written, family: str, rows: list[str]) -> None:
    path = f"{_FAMILIES}/{family}.py"
    tables = "".join(f.read_text() for f in (written.root / _FAMILIES).glob("*.py"))
    new = [row for row in rows if f'"{row}"' not in tables]
    old = written.text(path) or (
        f'"""{family.replace("_", " ").capitalize()}."""\n\n'
        "from tests.conformance.entry import Entry\n\nENTRIES = [\n]\n"
    )
    begin, end, rest = old.rpartition("\n]\n")
    added = "".join(f'\n    Entry("{row}"),' for row in new)
    if new:
        written.texts[path] = begin + added + end + rest
    known = "" if new else " (there already)"
    written.notes.append(f"{path}: {', '.join(rows)}{known}")


def _add_test(written: Written, short: str) -> None:
    op, path, coverage = written.op, f"tests/ops/test_{short}.py", "tests/conformance/coverage.py"
    if (written.root / path).exists():
        raise ScaffoldError(f"{path} exists already")
    written.texts[path] = templates.test_file(op, f"torch.ops.{op}", short)
    begin, mark, rest = written.text(coverage).partition("\n_SAMPLES = ")
    written.texts[coverage] = f'{begin}ELSEWHERE["{op}"] = "{path}"\n{mark}{rest}'
    written.notes.append(f"{path}: values beside eager's; torch has no samples of it")
    written.notes.append(f"{coverage}: that this test reaches it")


def _add_kernel(written: Written, short: str) -> None:
    op = written.op
    kernel = f"mojo_kernels/elementwise/{short}.mojo"
    for path, text in (
        (kernel, templates.mojo(op, short)),
        (f"tests/gpu/kernels/{short}.py", templates.gpu_graph(op, short)),
    ):
        if (written.root / path).exists():
            raise ScaffoldError(f"{path} exists already")
        written.texts[path] = text
    written.notes.append(f"{kernel}: the kernel, for graphs and for steps")
    written.notes.append(f"tests/gpu/kernels/{short}.py: its graph, compiled for GPUs in tests")


def _write(written: Written) -> None:
    for path, text in written.texts.items():
        (written.root / path).write_text(text)
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    python = [path for path in written.texts if path.endswith(".py")]
    if ruff is None:
        written.steps.insert(0, f"uv run ruff check --fix {' '.join(python)}")
        return
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        subprocess.run([ruff, *command, *python], cwd=written.root, check=False)
