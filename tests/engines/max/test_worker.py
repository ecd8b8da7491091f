"""A function that eager answers while a process of its own compiles it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from torch_max_backend import max_backend


def _wait() -> None:
    for thread in threading.enumerate():
        if thread.name == "torch_max_backend-compile":
            thread.join(600)
            assert not thread.is_alive()


# The graph is one that ``test_compiler.py`` compiles, in the same worker: MAX finds it in its own
# cache. Training is in ``test_stress.py``.
@pytest.mark.xdist_group("compile-0")
def test_eager_answers_until_the_graph_is_compiled(
    private_cache: Path, max_engine: None, caplog: pytest.LogCaptureFixture
) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + y, x.t()

    options = {"background": True}
    compiled = torch.compile(function, backend=max_backend, dynamic=True, options=options)
    x, y = torch.randn(5, 4), torch.randn(4)
    torch.testing.assert_close(compiled(x, y), function(x, y))  # nothing can be ready yet
    _wait()
    torch.testing.assert_close(compiled(x, y), function(x, y))
    assert not [r for r in caplog.records if "background failed" in r.getMessage()]
    # For the next process.
    (artifact,) = (private_cache / "artifacts").iterdir()
    assert artifact.suffix == ".max"
