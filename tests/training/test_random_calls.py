"""Random modules in random situations, beside eager PyTorch: a few of what
`python -m tests.training.fuzz_calls` calls for as long as it is given."""

from __future__ import annotations

import pytest

from tests.training.fuzz_calls import check


@pytest.mark.parametrize("seed", [11, 19, 32])
def test_calls_in_random_situations_give_what_eager_gives(seed: int) -> None:
    assert check(seed, calls=8) > 1
