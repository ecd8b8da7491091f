"""Try this package with several versions of torch:

    uv run python -m tests.torch_versions              the lowest and the highest that it promises
    uv run python -m tests.torch_versions 2.13 2.14    these
    uv run python -m tests.torch_versions newest       the newest torch and MAX of the index

Each is installed with all that it needs in an environment of its own, which is deleted afterwards;
the quick start and some tests run in it. Ends with 1 if something failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# `pyproject.toml` promises what lies between them, and nothing outside.
LOWEST, HIGHEST = "2.11", "2.15"

# The newest torch and MAX, whatever `pyproject.toml` promises.
NEWEST = "newest"

# Of the development environment; all else there depends on its version of torch or is not needed.
_TOOLS = ("max", "pytest", "pytest-xdist", "hypothesis", "expecttest", "psutil")

# What meets torch where its versions differ: how it traces, caches, differentiates, saves, which
# operators it has.
TESTS = (
    "tests/test_import.py",
    "tests/compat/test_names.py",
    "tests/compat/test_torch_versions.py",
    "tests/driver/test_partitioned.py",
    "tests/test_explain.py",
    "tests/test_training.py",
    "tests/test_ahead_of_time.py",
    "tests/driver/test_autograd_cache.py",
    "tests/graph/test_capability.py",
    "tests/registry/test_type_checks.py",
    "tests/graph",
    "tests/ops/test_higher_order.py",
    "tests/ops/test_resample.py",
    "tests/ahead_of_time/test_exporting.py",
)


_VERSIONS = """
from importlib.metadata import version
print(*(f"{name} {version(name)}" for name in ("torch", "max")), sep=", ", flush=True)
"""


def requirements() -> dict[str, str]:
    """What the development group asks for, by name."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        group = tomllib.load(file)["dependency-groups"]["dev"]
    return {re.split(r"[^\w-]", line)[0]: line for line in group}


def install(version: str, folder: Path) -> Path:
    """Make an environment with a version of torch, whatever its last number; returns its Python."""
    wanted = requirements()
    python = folder / "bin" / "python"
    _run("uv", "venv", "--quiet", "--python", sys.executable, str(folder))
    torch = [f"torch=={version}.*"]
    if version == NEWEST:
        wanted["max"] = "max"
        overrides = folder / "overrides.txt"
        overrides.write_text("torch\nmax\n")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        torch = ["torch", "--overrides", str(overrides), "--exclude-newer", now]
    _run(
        *("uv", "pip", "install", "--quiet", "--python", str(python), *torch),
        *(wanted[name] for name in _TOOLS),
        *("--editable", str(ROOT)),
    )
    return python


def _run(*command: str, **variables: str) -> None:
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)


def attempt(version: str, tests: list[str]) -> str:
    """What failed with a version of torch, "" if nothing did."""
    with tempfile.TemporaryDirectory(prefix="torch_versions-") as folder:
        try:
            python = str(install(version, Path(folder) / "environment"))
        except subprocess.CalledProcessError:
            return "cannot be installed"
        # Others, of the user or of this environment, would be found first.
        variables = {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
        variables |= {"VIRTUAL_ENV": "", "PYTHONPATH": ""}
        _run(python, "-c", _VERSIONS)
        steps = {
            "the quick start": (python, "examples/quickstart.py"),
            "tests": (
                *(python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"),
                *("--basetemp", f"{folder}/tests", *tests),
            ),
        }
        failed = []
        for name, command in steps.items():
            try:
                _run(*command, **variables)
            except subprocess.CalledProcessError:
                failed.append(name)
    return f"failed: {', '.join(failed)}" if failed else ""


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.torch_versions", description=__doc__.split("\n\n")[-1]
    )
    parser.add_argument("versions", metavar="VERSION", nargs="*", help="such as 2.11, or newest")
    parser.add_argument("--tests", metavar="PATH", nargs="+", help="instead of the usual ones")
    given = parser.parse_args()
    results = {}
    for version in given.versions or (LOWEST, HIGHEST):
        begin = time.monotonic()
        wrong = attempt(version, given.tests or list(TESTS))
        results[version] = wrong, time.monotonic() - begin
    for version, (wrong, seconds) in results.items():
        sys.stdout.write(f"torch {version}: {wrong or 'works'} ({seconds:.0f} s)\n")
    return int(any(wrong for wrong, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
