"""The rules that `tests/house.py` counts are kept."""

from __future__ import annotations

import pytest

from tests.house import RULES


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    assert list(RULES[rule]()) == []
