"""Symbols: names, expressions evaluated at run time, MAX dims."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torch_max_backend.graph.expressions import checked, evaluator

pytestmark = pytest.mark.xdist_group("compile-0")


class Sizes:
    """Symbolic ints of a shape environment, by name and hint."""

    def __init__(self) -> None:
        self.env = ShapeEnv()

    def __call__(self, name: str, hint: int) -> torch.SymInt:
        source = ConstantSource(name)
        symbol = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
        return self.env.create_symintnode(symbol, hint=hint, source=source)


@pytest.fixture
def size() -> Iterator[Any]:
    return Sizes()


@pytest.fixture
def shapes() -> Any:
    from torch_max_backend.graph import shapes

    return shapes


def test_names_follow_the_order_of_appearance(shapes: Any, size: Any) -> None:
    a, b = size("a", 5), size("b", 7)
    for first, second in ((a, b), (b, a)):
        symbols = shapes.Symbols()
        assert symbols.text(first) == "d0"
        assert symbols.text(second) == "d1"
        assert symbols.text(first) == "d0"


def test_names_do_not_depend_on_torchs(shapes: Any) -> None:
    texts = []
    for unused in (0, 5):
        size = Sizes()
        for i in range(unused):
            size(f"unused{i}", 100 + i)
        a, b = size("a", 5), size("b", 7)
        symbols = shapes.Symbols()
        texts.append([symbols.text(v) for v in (a, b, a * 2 + b, (a + b) // 3)])
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a,
        lambda a, b: a + b - 1,
        lambda a, b: a * b * 3,
        lambda a, b: (a + 1) // 2,
        lambda a, b: a * a,
        lambda a, b: a % 3,
        lambda a, b: torch.sym_max(a, b),
        lambda a, b: torch.sym_min(a, b + 2),
        lambda a, b: a // b,
        lambda a, b: torch.sym_float(a) / 2,
        lambda a, b: -a + 2,
        lambda a, b: (a + b) % (b + 1),
    ],
)
def test_texts_evaluate_to_pythons_values(shapes: Any, size: Any, function: Any) -> None:
    symbols = shapes.Symbols()
    a, b = size("a", 11), size("b", 6)
    assert (symbols.text(a), symbols.text(b)) == ("d0", "d1")
    text = symbols.text(function(a, b))
    assert checked(text, ["d0", "d1"]) == text
    evaluate = evaluator([text], ["d0", "d1"])
    for x, y in ((11, 6), (2, 9), (100, 7), (13, 13)):
        expected = function(x, y)
        assert evaluate(x, y) == [expected]


@pytest.mark.parametrize("value", [0, 5, -3, 2**40, True, 0.5, 1e-300, 0.1 + 0.2])
def test_plain_numbers_keep_their_value(shapes: Any, value: Any) -> None:
    text = checked(shapes.Symbols().text(value), [])
    assert evaluator([text], [])() == [value]


def test_the_evaluator_gives_all_values_at_once(shapes: Any) -> None:
    assert evaluator(["d0", "d0 + d1", "7"], ["d0", "d1"])(2, 3) == [2, 5, 7]


def test_static_sizes_stay_ints(shapes: Any) -> None:
    symbols = shapes.Symbols()
    assert symbols.dim(5) == 5
    assert type(symbols.dim(5)) is int


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: a, "d0"),
        (lambda a, b: a + 2, "d0 + 2"),
        (lambda a, b: a * b, "d0 * d1"),
        (lambda a, b: a * a * a, "d0 * d0 * d0"),
        (lambda a, b: a // 2, "d0 // 2"),
        (lambda a, b: a - b, "d0 - d1"),
        (lambda a, b: (a * 2 + b) // 3, "(d0 * 2 + d1) // 3"),
    ],
)
def test_arithmetic_that_max_knows_becomes_dims(
    shapes: Any, size: Any, function: Any, expected: str
) -> None:
    from max.graph import Dim

    symbols = shapes.Symbols()
    a, b = size("a", 11), size("b", 6)
    symbols.canonical(a), symbols.canonical(b)
    assert symbols.dim(function(a, b)) == eval(expected, {"d0": Dim("d0"), "d1": Dim("d1")})
    assert symbols.carried == {}


def test_other_arithmetic_is_carried_under_a_name_of_its_own(shapes: Any, size: Any) -> None:
    from max.graph import Dim

    symbols = shapes.Symbols()
    a, b = size("a", 11), size("b", 6)
    assert symbols.dim(a % 3) == Dim("e0")
    assert symbols.dim(torch.sym_max(a, b)) == Dim("e1")
    assert symbols.dim(a % 3) == Dim("e0")
    assert symbols.dim((a % 3) + 1) == Dim("e0") + 1
    texts = list(symbols.carried)
    assert list(symbols.carried.values()) == ["e0", "e1"]
    assert evaluator(texts, ["d0", "d1"])(11, 6) == [2, 11]


def test_expressions_and_hints(shapes: Any, size: Any) -> None:
    a = size("a", 11)
    assert shapes.expression(3) == sympy.Integer(3)
    assert shapes.expression(a).is_Symbol
    assert shapes.hint(a + 1) == 12
    assert shapes.hint(4) == 4
    assert shapes.hint(SimpleNamespace) is SimpleNamespace
