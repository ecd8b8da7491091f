"""``options=`` and ``mode=`` of ``torch.compile``."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from torch_max_backend import OptionError, max_backend
from torch_max_backend.options import Options


def test_nothing_given_is_the_default() -> None:
    assert Options.parse(None, None) == Options.parse("default", {}) == Options()


def test_known_options_are_taken() -> None:
    assert Options.parse(None, {"cache": False}) == Options(cache=False)
    assert Options.parse(None, {"cache": None}).cache is None


@pytest.mark.parametrize("value", ["mojo", "mkl", True, False, None])
def test_a_bank_is_named_or_switched(value: object) -> None:
    assert Options.parse(None, {"bank": value}).bank == value


def test_an_unknown_bank_is_refused() -> None:
    with pytest.raises(OptionError, match="'mojo', 'mkl', True, False or None, not 'blas'"):
        Options.parse(None, {"bank": "blas"})


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().cache = True  # type: ignore[misc]


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"'cahce'.*Did you mean 'cache'\?") as caught:
        Options.parse(None, {"cahce": True})
    assert "Known options: mode, engine, " in str(caught.value)


def test_an_option_far_from_all_others_still_lists_them() -> None:
    with pytest.raises(OptionError) as caught:
        Options.parse(None, {"zzz": True})
    assert "Did you mean" not in str(caught.value)
    assert "Known options: mode, engine, " in str(caught.value)


@pytest.mark.parametrize("value", ["yes", 1, 0.5, []])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="must be True, False or None") as caught:
        Options.parse(None, {"cache": value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [True, -0.1, 1.5, "half", float("nan")])
def test_a_budget_is_a_share(value: object) -> None:
    with pytest.raises(OptionError, match="must be a number from 0 to 1 or None"):
        Options.parse(None, {"activation_memory_budget": value})


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'defualt'.*Did you mean 'default'\?"):
        Options.parse("defualt", None)


def test_a_mode_may_stand_among_the_options() -> None:
    both = Options.parse(None, {"mode": "max-autotune", "cache": False})
    assert both == Options(mode="max-autotune", cache=False)
    assert Options.parse("reduce-overhead", None).mode == "reduce-overhead"
    with pytest.raises(OptionError, match="Two modes"):
        Options.parse("default", {"mode": "max-autotune"})


@pytest.mark.parametrize("mode", ["max-autotune-no-cudagraphs", 3, ["default"]])
def test_other_modes_are_refused(mode: object) -> None:
    with pytest.raises(OptionError, match="Known modes: default, reduce-overhead, max-autotune"):
        Options.parse(None, {"mode": mode})


@pytest.mark.parametrize("given", [{"options": {"cahce": True}}, {"mode": "max-autotume"}])
def test_torch_compile_raises_option_errors(given: dict[str, object]) -> None:
    torch._dynamo.reset()
    with pytest.raises(OptionError, match="for the max backend"):
        torch.compile(lambda x: x + 1, backend=max_backend, **given)(torch.ones(2))


def test_an_option_error_is_a_value_error() -> None:
    assert issubclass(OptionError, ValueError)
