"""The kernels that graphs of tests need, built together while a whole run begins: a library costs
some CPU seconds before its first kernel, and graph by graph there would be more than a hundred.

    uv run python -m tests.support.kernels          # build those of kernels.txt that are missing
    uv run python -m tests.support.kernels --list   # those of the cache directory, for kernels.txt

One that is missing in ``kernels.txt`` is built by the test that needs it; one that no test needs
any more costs a CPU second.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torch_max_backend.cache import kernel_libraries
from torch_max_backend.engines.steps import libraries
from torch_max_backend.engines.steps.shells import Instance, unavailable
from torch_max_backend.engines.steps.signatures import kernels
from torch_max_backend.errors import LibraryError

LISTED = Path(__file__).with_suffix(".txt")
_WRITTEN = re.compile(r"(\w+)\[(.*)\]\((.*)\)")
# Kernels that are built together: meanwhile tests that need others of their families wait.
_TOGETHER = 32


def parsed(text: str) -> Instance | None:
    """An instance as ``str`` writes it, if it is of a kernel of this package."""
    match = _WRITTEN.fullmatch(text)
    if match is None or match[1] not in kernels():
        return None
    call = ast.parse(f"f({match[2]})", mode="eval").body
    assert isinstance(call, ast.Call)
    parameters = [(k.arg or "", ast.literal_eval(k.value)) for k in call.keywords]
    operands = []
    for operand in match[3].split(", ") if match[3] else []:
        dtype, _, rank = operand.partition(" ")
        operands.append((dtype, int(rank.removesuffix("d") or 0)))
    found = Instance.of(match[1], parameters, operands)
    return None if unavailable(found) else found


def listed() -> list[Instance]:
    """What ``kernels.txt`` lists, but for kernels that have changed since."""
    found = map(parsed, LISTED.read_text().splitlines())
    return [instance for instance in found if instance is not None]


def build() -> None:
    """Build what is listed and missing; what fails is left to the tests that need it."""
    missing = [i for i in listed() if not libraries.built([i])]
    for k in range(0, len(missing), _TOGETHER):
        try:
            libraries.addresses(missing[k : k + _TOGETHER])
        except LibraryError as e:
            print(e, file=sys.stderr)


def build_beside(config: pytest.Config) -> subprocess.Popen[bytes] | None:
    """A process that does so, where all tests run in several workers."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if not whole or not getattr(config.option, "numprocesses", None):
        return None
    command = [sys.executable, "-m", "tests.support.kernels"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=config.rootpath, stdout=quiet, stderr=quiet)


def _known() -> list[str]:
    """Those of this machine's libraries."""
    manifests = [manifest for _, manifest, _ in kernel_libraries.listed() if manifest is not None]
    texts = {text for manifest in manifests for text in manifest.symbols.values()}
    return sorted(text for text in texts if parsed(text) is not None)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(*_known(), sep="\n")
    else:
        build()
