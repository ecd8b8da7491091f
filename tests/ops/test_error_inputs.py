"""Inputs that torch's own operators refuse, through ``torch.compile``.

Dynamo finds most of them while it traces; these are the ones of ``op_db`` that it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.groups import compile_group

X = torch.arange(6.0).reshape(2, 3)
INDEX = torch.tensor([[0, 1, 9]])

CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "gather": (lambda x, i: x.gather(1, i), [X, INDEX]),
    "scatter": (lambda x, i: x.scatter(1, i, 5.0), [X, INDEX]),
    "scatter_add": (lambda x, i: x.scatter_add(1, i, x), [X, INDEX]),
    "a source of another shape": (
        lambda x, i: x.index_add(0, i, x[:1]), [X, torch.tensor([0, 1])],
    ),
    "a mask that is not bool": (
        lambda x, m: x.masked_scatter(m, x), [X, torch.ones(2, 3, dtype=torch.uint8)],
    ),
    "boundaries of two dimensions": (torch.bucketize, [X, X]),
    "memory beyond the tensor": (
        lambda x, y: x.as_strided_scatter(y, [2, 2], [200, 200]), [X, X[:, :2]],
    ),
    "a product of two dtypes": (torch.mm, [X, X.t().bfloat16()]),
    "a batch of products of two dtypes": (torch.bmm, [X[None], X.t()[None].double()]),
    "a layer of another dtype": (torch.nn.functional.linear, [X, X.bfloat16(), X[:, 0].bfloat16()]),
    "a bias of another dtype": (torch.nn.functional.linear, [X, X, X[:2, 0].double()]),
}  # fmt: skip


@compile_group("error_inputs", weight=2)
@pytest.mark.parametrize("name", CASES)
def test_torchs_class_of_error_is_raised(name: str) -> None:
    function, tensors = CASES[name]
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        function(*tensors)
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(theirs.type):
        torch.compile(function, backend="max", fullgraph=True)(*tensors)
