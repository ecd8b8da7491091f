"""Try a release before it is published:

    uv run python -m tests.release                                 this Python, the newest torch
    uv run python -m tests.release --torch 2.11 2.15 --python python3.11 python3.13
    uv run python -m tests.release --draft                         while it is still worked on

Builds the source archive, and the wheel from that archive alone; checks what is in them; installs
the wheel with pip in environments of their own, which are deleted afterwards, and runs the README's
first example and the quick start in each. Ends with 1 if something failed. The archives are left in
dist/ only if nothing did.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.archives import sdist_problems, wheel_problems
from tests.pages import blocks

ROOT = Path(__file__).resolve().parents[1]

# What an installed wheel has to do. Isolated from the checkout: `-I` leaves out its folder.
_QUICK_START = """
import runpy, sys
from pathlib import Path
import torch_max_backend
from torch_max_backend.registry.kernel_sources import kernel_sources
package = Path(torch_max_backend.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not what was installed"
assert kernel_sources() == package / "mojo_kernels", kernel_sources()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Failed(Exception):
    """A check of a release failed; the message says how."""


@dataclass(frozen=True)
class Row:
    """A line of the report."""

    check: str
    problem: str
    seconds: float


class Report:
    """Checks, and what became of them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def run(self, name: str, check: Callable[[], object]) -> bool:
        """Run a check, which raises ``Failed``; returns whether it passed."""
        begin = time.monotonic()
        _say(f"{name} ...")
        try:
            check()
            problem = ""
        except Failed as e:
            problem = str(e)
        self.rows.append(Row(name, problem, time.monotonic() - begin))
        _say(f"    {problem or 'passed'}")
        return not problem

    @property
    def failed(self) -> bool:
        """Whether any check failed."""
        return any(row.problem for row in self.rows)

    def table(self) -> str:
        """The report as a Markdown table."""
        lines = ["| check | result | seconds |", "|---|---|---|"]
        for row in self.rows:
            result = row.problem.strip().replace("\n", "; ").replace("|", "/") or "passed"
            lines.append(f"| {row.check} | {result} | {row.seconds:.0f} |")
        return "\n".join(lines) + "\n"


def version() -> str:
    """The version in pyproject.toml."""
    import tomllib

    with open(ROOT / "pyproject.toml", "rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def check_tree() -> None:
    """Nothing is changed or untracked: what is built is what is committed."""
    changed = _run("git", "status", "--porcelain").splitlines()
    if changed:
        raise Failed(f"{len(changed)} files are not committed, such as {changed[0].strip()}")


def check_changelog(number: str, text: str, draft: bool) -> None:
    """The changelog has a section for the version, with a date.

    Args:
        number: The version.
        text: The changelog.
        draft: Without a date will do.
    """
    found = re.search(rf"^## \[{re.escape(number)}\] - (.*)$", text, re.M)
    if found is None:
        raise Failed(f"CHANGELOG.md has no section `## [{number}] - DATE`")
    if not draft and not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise Failed(f"{number} has no date in CHANGELOG.md, but {found[1]!r}")


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it. Needs no network."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder))
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (sources,) = (folder / "unpacked").iterdir()
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    _run(*command, cwd=sources)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def environment(python: str, torch: str, wheel: Path, folder: Path, reuse: bool) -> Path:
    """Install a wheel in an environment of its own; returns the environment's Python.

    Args:
        python: The interpreter that makes the environment.
        torch: A version such as "2.13", "" for the newest that the wheel allows.
        wheel: What to install.
        folder: Where the environment is made.
        reuse: Take torch, MAX and the rest from the environment that this program runs in.
    """
    own = folder / "bin" / "python"
    _run(python, "-m", "venv", str(folder))
    pip = (str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if reuse:
        _run(*pip, "--no-deps", str(wheel))
        # As in tests/test_packaging.py: this environment's own .pth files are not followed there.
        (site,) = (folder / "lib").glob("python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        _run(*pip, str(wheel), *([f"torch=={torch}.*"] if torch else []))
        _run(str(own), "-m", "pip", "check")
    return own


def quick_start(python: Path, folder: Path, reuse: bool) -> None:
    """Run the README's first example, the quick start and doctor with a cache of their own."""
    first = folder / "readme.py"
    first.write_text(blocks((ROOT / "README.md").read_text())[0])
    variables = {"TORCH_MAX_BACKEND_CACHE_DIR": str(folder / "cache")}
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
    variables["TORCH_MAX_BACKEND_FALLBACK"] = "error"  # eager PyTorch would hide what is missing
    if reuse:  # the Mojo compiler is not in the new environment
        variables["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    for script in (first, ROOT / "examples" / "quickstart.py"):
        _run(str(python), "-I", "-c", _QUICK_START, str(script), cwd=folder, **variables)
    doctor = (str(python), "-I", "-m", "torch_max_backend", "doctor")
    _run(*doctor, cwd=folder, **variables)


def versions_in(python: Path) -> str:
    """The versions in an environment, for the report."""
    code = (
        "import platform; from importlib.metadata import version as v; "
        "print('Python', platform.python_version() + ', torch', v('torch') + ', MAX', v('max'))"
    )
    return _run(str(python), "-I", "-c", code).strip()


def install_and_run(
    report: Report, wheel: Path, python: str, torch: str, reuse: bool, scratch: Path | None
) -> None:
    """A row of the report for an installation, and one for what runs in it."""
    asked = f"{Path(python).name}, torch {torch or 'newest'}"
    with tempfile.TemporaryDirectory(prefix="release-", dir=scratch) as name:
        folder = Path(name)
        place = folder / "environment"
        title = f"install with {'what is here' if reuse else 'pip'}: {asked}"
        if report.run(title, lambda: environment(python, torch, wheel, place, reuse)):
            own = place / "bin" / "python"
            report.run(f"quick start: {versions_in(own)}", lambda: quick_start(own, folder, reuse))


def _run(*command: str, cwd: Path = ROOT, **variables: str) -> str:
    """The output of a command that succeeds."""
    # A PYTHONPATH, or the environment of `uv run`, would be found in the new environments.
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**kept, **variables}, capture_output=True, text=True
        )
    except OSError as e:
        raise Failed(f"{command[0]} cannot be run: {e}") from e
    if done.returncode != 0:
        _say(f"{done.stdout}{done.stderr}")
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise Failed(f"`{shlex.join(command)[:80]}` ended with {done.returncode}: {last}")
    return done.stdout


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _raise_if(problems: Iterable[str]) -> None:
    if found := list(problems):
        raise Failed("; ".join(found))


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.release", description=__doc__.split("\n\n")[-1]
    )
    add = parser.add_argument
    add("--torch", nargs="+", default=[""], metavar="VERSION", help="such as 2.11 2.15")
    add("--python", nargs="+", default=[sys.executable], metavar="PYTHON", help="interpreters")
    add("--draft", action="store_true", help="with changes, and without a date in the changelog")
    add("--reuse", action="store_true", help="torch, MAX and the rest are those installed here")
    add("--scratch", type=Path, metavar="FOLDER", help="where environments are made: some GB each")
    given = parser.parse_args(arguments)
    if given.reuse and (given.torch != [""] or given.python != [sys.executable]):
        parser.error("--reuse has the versions that are installed here, and no others")
    report, number = Report(), version()
    if not given.draft:
        report.run("nothing is uncommitted", check_tree)
    text = (ROOT / "CHANGELOG.md").read_text()
    report.run("the changelog", lambda: check_changelog(number, text, given.draft))
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        if report.run("source archive, and wheel from it", lambda: build(folder)):
            (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
            report.run("contents of the wheel", lambda: _raise_if(wheel_problems(wheel, number)))
            report.run("contents of the archive", lambda: _raise_if(sdist_problems(sdist, number)))
            for python in given.python:
                for torch in given.torch:
                    install_and_run(report, wheel, python, torch, given.reuse, given.scratch)
            if not report.failed and not given.draft:
                (ROOT / "dist").mkdir(exist_ok=True)
                for built in (sdist, wheel):
                    shutil.copy(built, ROOT / "dist")
    _say("\n" + report.table())
    return int(report.failed)


if __name__ == "__main__":
    sys.exit(main())
