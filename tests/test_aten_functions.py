"""Start here when adding an operator: small functions on every shape and device, beside eager.

Put a function in ``FUNCTIONS``, see it fail, write the lowering, see it pass:

    uv run pytest tests/test_aten_functions.py -k my_function

They run as steps, and through MAX's compiler with one compile for all. A row in
``tests/conformance/families/`` then brings torch's own samples for the operator, in every dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "add_itself": lambda x: x + x,
    "scale_and_shift": lambda x: x * 2.5 - 1,
    "relu": torch.relu,
    "mean_of_all": lambda x: x.sum() / max(x.numel(), 1),
    "softmax": lambda x: torch.softmax(x, -1),
    "flatten": lambda x: x.reshape(-1),
    "repeat": lambda x: torch.cat([x.reshape(-1), x.reshape(-1)]),
    "compare": lambda x: torch.where(x > 0, x, x.neg()),
}


@cache
def _compiled(shapes: tuple[tuple[int, ...], ...], devices: tuple[str, ...]) -> list[Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    torch.manual_seed(0)
    programs = [
        Program(name, function, [torch.randn(shape, device=device)])
        for name, function in FUNCTIONS.items()
        for shape in shapes
        for device in devices
    ]
    compile_together(programs)
    return programs


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_eager_as_steps(
    name: str, tensor_shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend import max_backend

    monkeypatch.setenv("TORCH_MAX_BACKEND_ENGINE", "steps")
    torch.manual_seed(0)
    compiled = torch.compile(
        FUNCTIONS[name], backend=max_backend, dynamic=False, options={"cache": False}
    )
    for shape in tensor_shapes:
        torch._dynamo.reset()
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), FUNCTIONS[name](x))


@compile_group("aten_functions", weight=2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_eager(
    name: str, tensor_shapes: list[tuple[int, ...]], devices: list[str]
) -> None:
    from tests.conformance.closeness import difference
    from tests.conformance.reference import truth

    programs = [p for p in _compiled(tuple(tensor_shapes), tuple(devices)) if p.name == name]
    assert len(programs) == len(tensor_shapes) * len(devices)
    for program in programs:
        found = difference(program.run(), program.eager(), truth(program))
        assert found is None, f"shape {list(program.tensors[0].shape)}: {found}"
