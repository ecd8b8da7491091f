"""The Python blocks of documents: a script each, and one MAX compile for the graphs of all.

Each script runs twice. First torch runs every graph that the backend is asked for, so that all are
known; they are compiled as one module and stored. The second time the backend does all that it does
for users, and finds each artifact in the cache; a graph that it does not find is compiled.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from torch.fx import GraphModule, Interpreter, Node

_BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.M | re.S)


def blocks(text: str) -> list[str]:
    """The Python blocks of a Markdown text."""
    return [textwrap.dedent(block) for block in _BLOCK.findall(text)]


def script(text: str) -> str:
    """The Python blocks, each line where it is in the text; "" if there are none."""
    lines = [""] * text.count("\n")
    for found in _BLOCK.finditer(text):
        first = text.count("\n", 0, found.start(1))
        block = textwrap.dedent(found[1]).splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines).rstrip() + "\n" if any(lines) else ""


class Pages:
    """Scripts whose graphs are compiled together.

    Attributes:
        compiled: How many graphs were.
    """

    def __init__(self, texts: dict[str, str], folder: Path) -> None:
        """``texts`` are documents by name; ``folder`` is where their scripts are written."""
        self.compiled = 0
        self._folder = folder
        self._files: dict[str, Path] = {}
        for name, text in texts.items():
            file = folder / f"{re.sub(r'[^a-z]+', '_', name.lower())}.py"
            file.write_text(script(text))
            self._files[name] = file
        collected = _Collected()
        with _registrations():
            for name in texts:
                # What fails here fails again, or does not, when the script is run.
                with collected.collecting(), contextlib.suppress(Exception, SystemExit):
                    self._execute(name)
            self.compiled = collected.compile()

    def run(self, name: str) -> None:
        """Run the script of a document in a folder of its own."""
        with _registrations():
            self._execute(name)

    def _execute(self, name: str) -> None:
        from torch_max_backend.driver import background

        file = self._files[name]
        module = sys.modules[file.stem] = ModuleType(file.stem)
        place = self._folder / f"{file.stem}_files"
        place.mkdir(exist_ok=True)
        torch._dynamo.reset()
        with mock.patch.dict(os.environ), contextlib.chdir(place):
            try:
                exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
            finally:
                background.wait_for_all()
                torch._dynamo.reset()
                del sys.modules[file.stem]


@contextlib.contextmanager
def _registrations() -> Iterator[None]:
    """Lowerings that are registered in the body are forgotten after it."""
    import torch_max_backend.ops  # noqa: F401  registers the package's own
    from torch_max_backend.registry.lowerings import registry

    known = set(registry)
    try:
        yield
    finally:
        for op in set(registry) - known:
            registry.remove(op)


class _Collected:
    """The graphs that the backend is asked for."""

    def __init__(self) -> None:
        self._jobs: dict[str, Any] = {}
        self._plain: dict[int, tuple[Any, GraphModule]] = {}

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """In the body, torch runs what MAX would."""
        from torch_max_backend.driver import job
        from torch_max_backend.driver.torch_runs import copied

        prepare = job.prepare

        def prepared(module: GraphModule, *others: Any) -> Any:
            plain = copied(module)
            trace = prepare(module, *others)
            self._plain[id(trace)] = trace, plain
            return trace

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "prepare", prepared)
            patch.setattr(job.Job, "functions", lambda *jobs: [self._run(j) for j in jobs])
            yield

    def _run(self, job: Any) -> Callable[[list[Any]], Sequence[Any]]:
        from functorch.compile import make_boxed_func

        self._jobs.setdefault(job.entry, job)
        return make_boxed_func(_Torch(self._plain[id(job.trace)][1]).run)

    def compile(self) -> int:
        """Plan the graphs, or compile them as one module, and store that; returns how many they
        are."""
        from tests.support.module_cache import artifact_of
        from torch_max_backend.cache import store
        from torch_max_backend.driver.compiling import make_plans
        from torch_max_backend.driver.passes import own_modes
        from torch_max_backend.engines.max.module import build_module
        from torch_max_backend.errors import MaxBackendError

        jobs = []
        with own_modes():
            for job in self._jobs.values():
                # What has no step is an error of its page again, or runs in torch.
                with contextlib.suppress(MaxBackendError):
                    jobs += [] if make_plans([job]) else [job]
            if jobs:
                module, libraries = build_module([job.trace for job in jobs])
                artifact = artifact_of(module, libraries, f"{len(jobs)} graphs")
        for job in jobs:
            store.put(job.entry, artifact, job.parts, [job.entry for job in jobs])
        return len(self._jobs)


class _Torch(Interpreter):
    """Runs a graph with torch; of Mojo kernels, whose eager form is compiled too, it knows the
    results' sizes only."""

    def run_node(self, n: Node) -> Any:
        from torch_max_backend.registry.lowerings import registry

        known = registry.get(n.target) if n.op == "call_function" else None  # type: ignore[call-overload]
        if known is None or not isinstance(known.kernels, Path):
            return super().run_node(n)
        like = n.meta["val"]
        return torch.zeros([int(s) for s in like.shape], dtype=like.dtype)
