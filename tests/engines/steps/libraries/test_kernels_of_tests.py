"""The list of kernels that a whole run builds first."""

from __future__ import annotations

from tests.support import kernels


def test_the_list_is_of_kernels_that_are_there() -> None:
    listed = kernels.LISTED.read_text().splitlines()
    found = [str(instance) for instance in kernels.listed()]
    assert set(found) <= set(listed)
    # `python -m tests.support.kernels --list` writes it anew.
    assert len(found) > 0.9 * len(listed)
