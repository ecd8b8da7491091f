from __future__ import annotations

from unittest.mock import Mock

import pytest

from torch_max_backend.driver.compiling import make_plans
from torch_max_backend.errors import LibraryError


def test_kernels_that_do_not_build_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    jobs = [Mock(engine="auto"), Mock(engine="auto")]
    for job in jobs:
        job.plan.side_effect = LibraryError("The Mojo compiler could not build it.", "error: here")
        job.is_cut.return_value = False
    assert make_plans(jobs) == {}
    (told,) = (r.message for r in caplog.records if r.levelname == "WARNING")
    assert told.startswith("MAX compiles a graph, as kernels for its steps cannot be built.")
    assert "error: here" in told
