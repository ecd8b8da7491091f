"""Kernels of the user run as steps, called through shells that are made from their sources."""

import pytest
import torch

from torch_max_backend import max_backend, mojo_op
from torch_max_backend.errors import ExecutionError

CODE = """
from extensibility import InputTensor, OutputTensor, foreach, register
from layout import Coord
from max.gpu.host import DeviceContext


@register("tests_steps_shifted")
struct Shifted:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        by: Float64,
        ctx: DeviceContext,
    ) raises:
        if by < 0:
            raise Error("shifted takes no negative number")
        var added = by.cast[output.dtype]()

        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var added} -> SIMD[output.dtype, width]:
            return x.load[width](at) + added

        foreach[target=target](body, output, ctx)
"""


@pytest.fixture(scope="module")
def shifted() -> object:
    return mojo_op(
        "tests_steps::shifted(Tensor x, float by) -> Tensor",
        CODE,
        fake=lambda x, by: torch.empty_like(x),
        kernel="tests_steps_shifted",
    )


def test_a_kernel_of_the_users_own_is_a_step(shifted: object) -> None:
    options = {"engine": "steps", "fallback": "error", "cache": False}

    def function(x: torch.Tensor, by: float) -> torch.Tensor:
        return shifted(x * 2, by) - 1  # type: ignore[operator]

    compiled = torch.compile(function, backend=max_backend, fullgraph=True, options=options)
    x = torch.randn(5, 70)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.t(), 3.0), x.t() * 2 + 3 - 1)
        with pytest.raises(ExecutionError, match="shifted takes no negative number"):
            compiled(x, -1.0)
