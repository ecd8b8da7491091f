"""What is said of a torch or a MAX that lacks a name."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from torch_max_backend.compat import names
from torch_max_backend.compat.names import VersionError, names_of


def test_the_error_names_the_version_and_those_that_work() -> None:
    with (
        pytest.raises(VersionError, match="cannot import name 'nothing'") as found,
        names_of("torch"),
    ):
        from torch import nothing  # noqa: F401
    text = str(found.value)
    assert torch.__version__.split("+")[0] in text
    assert re.search(r"Versions that work: torch.*>=2\.\d+", text)
    assert "max" not in text.split("Versions that work")[1].replace("torch_max_backend", "")


def test_nothing_is_missing_here() -> None:
    assert list(names.missing()) == []


@pytest.mark.parametrize(("module", "told"), [("expecttest", False), ("torch._gone", True)])
def test_what_only_torchs_tests_need_is_not_missing(
    module: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        with names_of("torch"):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(names, "import_module", absent)
    assert bool(list(names.missing())) == told


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend import doctor
    from torch_max_backend.compat import decompositions

    monkeypatch.delattr("torch._decomp.decompositions.one_layer_lstm")
    monkeypatch.delitem(sys.modules, decompositions.__name__)
    found = [f for f in doctor._versions() if f.what == "versions"]
    assert [f.state for f in found] == ["wrong"]
    assert "one_layer_lstm" in found[0].found
