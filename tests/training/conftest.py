"""The plans of the graphs of all scripts of this folder that will run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.precompiled import Precompiled


@pytest.fixture(scope="session")
def precompiled(request: pytest.FixtureRequest) -> Precompiled:
    tests = [getattr(item, "function", None) for item in request.session.items]
    return Precompiled({}, [test.script for test in tests if hasattr(test, "script")])


@pytest.fixture
def programs(precompiled: Precompiled) -> Iterator[Precompiled]:
    with precompiled.serving():
        yield precompiled
