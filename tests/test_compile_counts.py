"""How many graphs a program makes of sizes and numbers, as ``docs/dynamic-shapes.md`` says.

Torch runs them: nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group
from torch_max_backend import max_backend

pytestmark = compile_group("pages")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _graphs(sizes: Sequence[int], dynamic: bool | None, mark: bool) -> int:
    from torch_max_backend.explanation import explained

    weight = torch.ones(4, 4)
    compiled = torch.compile(lambda x: (x @ weight).tanh(), backend=max_backend, dynamic=dynamic)
    with explained() as found:
        for k, size in enumerate(sizes):
            x = torch.ones(size, 4)
            if mark and k == 0:
                torch._dynamo.mark_dynamic(x, 0)
            compiled(x)
    return len(found.graphs)


@pytest.mark.parametrize(
    ("sizes", "dynamic", "mark", "graphs"),
    [
        ((5, 5), None, False, 1),
        ((5, 6, 7), None, False, 2),
        ((5, 6, 7), None, True, 1),
        ((5, 6, 7), True, False, 1),
        (range(2, 12), False, False, 8),
        ((5, 1, 0, 7, 1), True, False, 3),
        ((1, 5, 6), None, True, 2),
    ],
)
def test_sizes(sizes: Sequence[int], dynamic: bool | None, mark: bool, graphs: int) -> None:
    assert _graphs(sizes, dynamic, mark) == graphs


@pytest.mark.parametrize("numbers", [(3, 4, 5, 6), (1.5, 2.5, 3.5, 4.5)])
def test_numbers(numbers: Sequence[float]) -> None:
    from torch_max_backend.explanation import explained

    def function(x: Tensor, by: float) -> Tensor:
        return (x * by).sin()

    compiled = torch.compile(function, backend=max_backend)
    with explained() as found:
        for number in numbers:
            compiled(torch.ones(4), number)
    assert len(found.graphs) == 2


def test_code_that_looks_at_a_marked_size_is_an_error() -> None:
    from torch_max_backend.explanation import explained

    def function(x: Tensor) -> Tensor:
        return x.sin() * 2 if x.shape[0] == 5 else x.cos() * 3

    x = torch.ones(5, 4)
    torch._dynamo.mark_dynamic(x, 0)
    compiled = torch.compile(function, backend=max_backend, fullgraph=True)
    with explained(), pytest.raises(Exception, match=r"dynamic but your code specialized"):
        compiled(x)
