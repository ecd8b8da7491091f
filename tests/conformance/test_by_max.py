"""A share of the programs that other tests run as steps, by MAX's engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import torch

from tests.conformance import test_complex, test_op_db
from tests.conformance.tables import ENTRIES
from tests.gemm_providers.test_products import by_other_provider
from tests.ops import random_cases
from tests.precompiled import whole_programs_by_max

if TYPE_CHECKING:
    from tests.conformance.program import Program

# One program in so many, chosen by its name. At least one in twenty of torch's samples.
SHARES = {"op_db": 14, "complex": 21, "ops.test_data_sizes": 28, "others": 57}
# Modules whose function `_programs` makes them.
MODULES = (
    "conformance.test_special_values", "convert.test_fusion_barriers",
    "convert.test_repeated_subgraphs", "ops.test_elementary", "ops.test_grid_sample",
    "ops.test_integers", "ops.test_internal", "ops.test_layers", "ops.test_reduction",
    "ops.test_resample", "ops.test_scatter", "ops.test_selection",
    "ops.test_special", "ops.test_unpooling", "test_mojo_kernels",
)  # fmt: skip
SOURCES = ("op_db", "complex", "ops.test_data_sizes", *MODULES)
RANDOM = ("rand-static", "randn-dynamic", "dropout-static")


def _chosen(source: str) -> Iterator[Program]:
    from tests.conformance.together import gathered

    if source == "random":
        made = gathered(random_cases.programs.__wrapped__)
        yield from (p for p in made if p.name in RANDOM)
        return
    if source == "op_db":
        makes = [partial(test_op_db._compiled.__wrapped__, g, False) for g in test_op_db._GROUPS]
    elif source == "complex":
        makes = [partial(test_complex._compiled.__wrapped__, g) for g in test_complex.GROUPS]
    else:
        makes = [import_module(f"tests.{source}")._programs.__wrapped__]
    share = SHARES.get(source, SHARES["others"])
    refused = tuple(prefix for entry in ENTRIES for prefix in entry.refused)
    for make in makes:
        for program in gathered(make):
            # What raises has tests of its own.
            if program.name.startswith(refused) or program.name.endswith("fails"):
                continue
            if int(hashlib.sha256(program.name.encode()).hexdigest(), 16) % share == 0:
                yield program


@cache
def _programs() -> dict[str, list[Program]]:
    """The chosen programs by where they come from."""
    chosen = {source: list(_chosen(source)) for source in (*SOURCES, "random")}
    chosen["other provider"] = by_other_provider()
    # Of some modules there is none.
    others = [p for module in MODULES for p in chosen.pop(module)]
    return {**chosen, "others": others}


def compile_chosen_with(more: Sequence[Program]) -> None:
    """Have MAX compile the chosen programs and some others, in one module."""
    from tests.conformance.modules import compile_module_of

    compile_module_of([*(p for found in _programs().values() for p in found), *more])


def _compiled(source: str) -> list[Program]:
    whole_programs_by_max()
    return _programs()[source]


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize("source", [*SHARES, "other provider"])
def test_agrees_with_eager(source: str) -> None:
    from tests.conformance.reference import complaint

    found = {program.name: complaint(program) for program in _compiled(source)}
    if source == "other provider" and not found:
        pytest.skip("this machine has one provider of products")
    assert found
    assert not any(found.values()), {name: text for name, text in found.items() if text}


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_steps(name: str) -> None:
    by_max = next(p for p in _compiled("random") if p.name == name)
    case, kind = name.split("-")
    by_steps = random_cases.drawn(case, kind=kind)
    torch.manual_seed(0)
    torch.testing.assert_close(by_max.run(), by_steps, rtol=1e-6, atol=1e-6)
