"""AOTAutograd's entry does what torch's own does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from torch_max_backend import max_backend
from torch_max_backend.compat.autograd import (
    OutputCode,
    SerializableAOTDispatchCompiler,
    aot_autograd,
)


def test_debug_files_are_written_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    torch._dynamo.reset()
    with torch._dynamo.config.patch(debug_dir_root=str(tmp_path)):
        torch.compile(lambda x: x + 1, backend=max_backend, fullgraph=True)(torch.ones(2))
    assert list(tmp_path.rglob("aot_*_debug.log"))


def _compiled(function: Callable[..., Any], arguments: Sequence[Any], compiler: Any) -> Any:
    compilers = dict.fromkeys(
        ("fw_compiler", "bw_compiler", "inference_compiler"),
        SerializableAOTDispatchCompiler(OutputCode, compiler),
    )
    return aot_autograd(**compilers)(torch.fx.symbolic_trace(function), arguments)


def test_arguments_may_be_lists() -> None:
    def function(pair: list[Tensor], x: Tensor) -> tuple[Tensor]:
        return (pair[0] * pair[1] + x,)

    a, b, x = torch.randn(3, 4)
    compiled = _compiled(function, [[a, b], x], lambda module, example_inputs: module)
    torch.testing.assert_close(compiled([a, b], x), (a * b + x,))


def test_a_compiler_that_fails_is_counted() -> None:
    def compiler(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
        raise ValueError("no such graph")

    before = counters["aot_autograd"]["not_ok"]
    with pytest.raises(ValueError, match="no such graph"):
        _compiled(lambda x: (x + 1,), [torch.ones(2)], compiler)
    assert counters["aot_autograd"]["not_ok"] == before + 1
