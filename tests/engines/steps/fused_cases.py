"""The programs that tests compile, all as one library: one for each module costs 15 CPU seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any
from unittest import mock

from torch_max_backend.engines.steps import fused

# Modules whose function `fuse_programs` asks for what their tests need compiled.
MODULES = (
    "engines.steps.test_programs", "engines.steps.test_rowwise",
    "engines.steps.test_stepped_programs", "engines.steps.test_sums_beside", "ops.test_reduction",
)  # fmt: skip


@contextmanager
def fused_together() -> Iterator[None]:
    """In the body no program is compiled; behind it all that would have been are, as one
    library."""
    found: list[Any] = []
    with mock.patch.object(fused, "build", found.extend):
        yield
    wanted = fused._wanted(found)
    fused.build(wanted)
    assert all(map(fused.address, wanted)), "a program was not compiled"


@cache
def compile_programs() -> None:
    """Compile what the tests of all modules need."""
    with fused_together():
        for name in MODULES:
            import_module(f"tests.{name}").fuse_programs()
