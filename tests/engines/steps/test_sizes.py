"""What is kept for the sizes that a plan was called with."""

from __future__ import annotations

import gc
from weakref import WeakSet

import pytest
import torch

from tests.engines.steps.plans import traced
from torch_max_backend import max_backend
from torch_max_backend.engines.steps import run, table, tables
from torch_max_backend.engines.steps.sized import Sized


def test_sizes_that_are_dropped_leave_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for Python to look for circles, which it rarely does in a large process."""
    made: WeakSet[table.Table] = WeakSet()

    class Noted(table.Table):
        def __init__(self, sized: Sized) -> None:
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


def _parts(x: torch.Tensor) -> list[torch.Tensor]:
    """Kernels and programs; a view whose place sizes tell; what rows of programs look like depends
    on sizes, and a pair of them is one function where rows are long."""
    centred = x - x.sum(-1, keepdim=True)
    half = x[x.shape[0] // 2 :].sin()
    return [centred, half @ half.t(), torch.arange(x.shape[0]) + half.sum(), x.t() * 2]


def test_tables_of_later_sizes_are_as_if_they_were_the_first() -> None:
    plan, _ = traced(_parts, [torch.randn(6, 300)], dynamic=True)
    later, forms = tables.Tables(plan), set()
    for shape in ((6, 300), (8, 300), (6, 5), (6, 300), (700, 40), (3, 2000), (8, 300)):
        found, first = later.of(shape), tables.Tables(plan).of(shape)
        for sized in (found, first):
            for word, _, _ in (*sized.addresses.filled, *sized.addresses.constants):
                # Of other tensors, whose contents are equal.
                sized.words[word] = 0
        assert found.words == first.words
        assert found.addresses == first.addresses
        assert (found.temporaries, found.arena) == (first.temporaries, first.arena)
        assert (found.outputs, found.programs) == (first.outputs, first.programs)
        forms.add(len(found.words))
    assert len(forms) > 2, "rows of one form only"
    assert found.addresses.filled
    assert found._joined, "no pair"
    assert not later.of((6, 5))._joined
