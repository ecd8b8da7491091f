"""Plans as bytes: whole after a round trip, refused when damaged or forged."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.tracing import traced
from torch_max_backend import CompilationError
from torch_max_backend.engines.steps.serialize import MAGIC, deserialized, serialized


@pytest.fixture(scope="module")
def artifact() -> bytes:
    """A plan with kernels and programs, symbolic sizes, one that it counts, and a constant."""
    from torch_max_backend.driver.passes import own_modes, prepare
    from torch_max_backend.engines.steps.planned import planned

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        table = torch.tensor([0.5, 2.0, 3.0, 4.0])
        y = (x @ w).relu() * table
        sums = (y + 1).exp().sum(-1)
        return y.softmax(-1).sum(0), torch.arange(x.shape[0]) + 1, sums, y[y > 0] * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        module = traced(function, torch.randn(6, 4), torch.randn(4, 4), dynamic=True)
    with own_modes():
        return serialized(planned(prepare(module)))


@pytest.fixture
def content(artifact: bytes) -> Any:
    return json.loads(artifact[len(MAGIC) :])


def _bytes(content: Any) -> bytes:
    return MAGIC + json.dumps(content).encode()


def test_a_round_trip_changes_nothing(artifact: bytes) -> None:
    assert serialized(deserialized(artifact)) == artifact


@pytest.mark.parametrize("length", [0, 1, 10, 100, -1])
def test_a_part_is_refused(artifact: bytes, length: int) -> None:
    end = len(artifact) - 1 if length < 0 else len(MAGIC) + length
    with pytest.raises(CompilationError, match="cannot be read"):
        deserialized(artifact[:end])


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for k in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[k], (*path, k))


@pytest.mark.parametrize("other", [None, -1, 10**30, "no_such_name", [], {}, True])
def test_any_other_value_is_refused_or_a_plan(content: Any, other: Any) -> None:
    for path in [*_places(content)][1:]:
        forged = copy.deepcopy(content)
        at = forged
        for k in path[:-1]:
            at = at[k]
        at[path[-1]] = other
        with contextlib.suppress(CompilationError):
            deserialized(_bytes(forged))


def test_what_follows_fits_what_was_counted(content: Any) -> None:
    plan, names, results = content["then"]
    forged = ([plan, [], results], [plan, ["a"], results], [plan, names, [[True, 9]]], plan)
    for wrong in forged:
        with pytest.raises(CompilationError, match="cannot be read"):
            deserialized(_bytes({**content, "then": wrong}))


EVIL = "__import__('os').abort()"


def test_expressions_are_not_code(content: Any) -> None:
    content["memory"][0][2] = EVIL
    with pytest.raises(CompilationError, match="not allowed in an expression"):
        deserialized(_bytes(content))


def test_steps_stay_inside_of_their_memory() -> None:
    def forged(size: int, shape: int, stride: int, offset: int, memory: int = 0) -> bytes:
        place = [memory, [shape], [stride], offset]
        program = [["float32"], [["negative", "float32", [0], None]], [1], []]
        return _bytes(
            {
                "steps": [["program", program, [shape], 0, [[1, [shape], [1], 0]], [place], ""]],
                "memory": [
                    ["input", "float32", size, 0, 0, 0], ["output", "float32", 4, 0, 0, 0]
                ],
                "constants": [], "sizes": [], "ranges": [], "outputs": [["float32", [4]]],
                "checks": [], "symbols": {}, "then": None,
            }
        )  # fmt: skip

    deserialized(forged(8, 4, 2, 1))
    deserialized(forged(8, 4, -2, 7))
    for wrong in ((8, 4, 2, 2), (8, 4, -2, 5), (8, 4, 1, -1), (8, 5, 1, 0), (4, 4, 1, 0, 2)):
        with pytest.raises(CompilationError, match="cannot be read"):
            deserialized(forged(*wrong))
