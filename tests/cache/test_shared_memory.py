"""A cached graph of arguments that lie in the same memory serves no others, nor theirs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torch_max_backend import max_backend

pytestmark = pytest.mark.xdist_group("compile-0")


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Writes to ``x`` and reads ``y``, which sees it if it is a view of ``x``."""
    x.add_(y.flip(0))
    return y * 2


_MAKERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a view": lambda x: x[:],
    "a tensor of its own": lambda x: x.clone(),
}


@pytest.mark.parametrize("order", [[*_MAKERS], [*_MAKERS][::-1]], ids=["view first", "view last"])
def test_arguments_that_share_memory_have_a_graph_of_their_own(
    lent_libraries: Path, order: list[str]
) -> None:
    for name in order:
        # As a new process would: Dynamo forgets the graph, the caches do not.
        torch._dynamo.reset()
        compiled = torch.compile(_written, backend=max_backend)
        ours, theirs = (torch.arange(12.0).reshape(4, 3) for _ in range(2))
        want = _written(theirs, _MAKERS[name](theirs))
        got = compiled(ours, _MAKERS[name](ours))
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(ours, theirs)
