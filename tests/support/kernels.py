"""The kernels that tests run as steps, built together where a whole run begins without them.

A library costs 4 to 6 CPU seconds before its first kernel, and a kernel half a second; tests that
build what they need make a hundred libraries. ``kernels.txt`` says what they need. It may be out of
date: what it lacks is built when a test needs it.

    python -m tests.support.kernels           # build those of the list
    python -m tests.support.kernels --list    # list anew what is in the cache directory
"""

from __future__ import annotations

import ast
import fcntl
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.home import HOME
from torch_max_backend.cache.kernel_libraries import folder, read
from torch_max_backend.engines.steps.families import current_keys
from torch_max_backend.engines.steps.libraries import built, kept, provide
from torch_max_backend.engines.steps.program_libraries import libraries_by_operation
from torch_max_backend.engines.steps.runner import RUN
from torch_max_backend.engines.steps.shells import Instance, unavailable
from torch_max_backend.engines.steps.signatures import kernels
from torch_max_backend.engines.steps.texts import Text
from torch_max_backend.errors import LibraryError

_LIST = Path(__file__).with_name("kernels.txt")
# Locked while a process builds.
_BUILDING = HOME / "tests" / "building.lock"
_TEXT = re.compile(r"(?P<kernel>[\w.]+)\[(?P<parameters>.*)\]\((?P<operands>.*)\)")


def start_build() -> subprocess.Popen[bytes] | None:
    """A process that builds those of the list that are missing; ``None`` if there are none."""
    instances, texts = _listed()
    if built(instances) and all(map(kept, texts)):
        return None
    _BUILDING.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _BUILDING.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The process holds the lock as long as it has the file.
        return subprocess.Popen([sys.executable, "-m", __name__], pass_fds=[lock.fileno()])


def wait_for_build() -> None:
    """Wait for a process that ``start_build`` started here or elsewhere."""
    if _BUILDING.exists():
        with _BUILDING.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


def _listed() -> tuple[list[Instance], list[Text]]:
    """The instances of the list that there can be, and the texts."""
    known = _texts()
    lines = _LIST.read_text().splitlines()
    wanted = [_instance(line) for line in lines if line not in known]
    instances = [i for i in wanted if i.kernel in kernels() and not unavailable(i)]
    return instances, [known[line] for line in lines if line in known]


def _texts() -> dict[str, Text]:
    """The texts that a list may name."""
    found = [RUN, *(library.text() for library in libraries_by_operation().values())]
    return {text.name: text for text in found}


def _instance(text: str) -> Instance:
    """What ``str`` made the text of."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no instance of a kernel")
    call = ast.parse(f"f({found['parameters']})", mode="eval").body
    assert isinstance(call, ast.Call)
    parameters = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    operands = []
    for operand in found["operands"].split(", "):
        dtype, _, rank = operand.partition(" ")
        operands.append((dtype, int(rank.removesuffix("d") or 0)))
    return Instance.of(found["kernel"], parameters, operands)


def _in_cache() -> Iterator[str]:
    """What the libraries in the cache directory export of this package's kernels, and the texts."""
    keys = current_keys()
    yield from (name for name, text in _texts().items() if kept(text))
    for path in folder().glob("*.json"):
        manifest = read(path)
        if manifest.key in keys:
            yield from manifest.symbols.values()


def main(*arguments: str) -> None:
    """The command line; see the top of this file."""
    if arguments == ("--list",):
        _LIST.write_text("".join(f"{text}\n" for text in sorted(set(_in_cache()))))
        return
    try:
        provide(*_listed())
    except LibraryError as e:
        print(f"Tests build what they need of the kernels: {e}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
