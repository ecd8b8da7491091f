"""What is kept for the sizes that a plan was called with."""

from __future__ import annotations

import gc
from weakref import WeakSet

import pytest
import torch

from torch_max_backend import max_backend
from torch_max_backend.engines.steps import run, table, tables


def test_sizes_that_are_dropped_leave_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for Python to look for circles, which it rarely does in a large process."""
    made: WeakSet[table.Table] = WeakSet()

    class Noted(table.Table):
        def __init__(self, sized: table.Sized) -> None:
            super().__init__(sized)
            made.add(self)

    monkeypatch.setattr(run, "Table", Noted)
    monkeypatch.setattr(tables.Tables, "KEPT", 4)
    torch._dynamo.reset()
    options = {"engine": "steps", "cache": False}
    function = torch.compile(
        lambda x: (x.sin() @ x.t()).softmax(-1), backend=max_backend, dynamic=True, options=options
    )
    gc.disable()
    try:
        for n in range(3, 20):
            for _ in range(12 if n % 5 == 0 else 1):  # some often enough to be written out
                x = torch.randn(n, 6)
                torch.testing.assert_close(function(x), (x.sin() @ x.t()).softmax(-1))
        assert len(made) <= 5
    finally:
        gc.enable()
