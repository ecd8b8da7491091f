"""Operators of the user's own, written in Mojo."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group
from torch_max_backend import RegistrationError, mojo_op

CODE = """
from extensibility import InputTensor, OutputTensor, foreach, register
from layout import Coord
from max.gpu.host import DeviceContext


@register("tests_scale")
struct Scale:
    @staticmethod
    def execute[
        squared: Bool, target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        by: Float64,
        shift: Int64,
        ctx: DeviceContext,
    ) raises:
        var factor = by.cast[output.dtype]()
        var add = shift.cast[output.dtype]()

        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var factor, var add} -> SIMD[
            output.dtype, width
        ]:
            var v = x.load[width](at)
            comptime if squared:
                v *= v
            return v * factor + add

        foreach[target=target](body, output, ctx)
"""


@cache
def _scale() -> Any:
    def keep(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, ctx.by, _, ctx.squared = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        slope = 2 * x if ctx.squared else torch.ones_like(x)
        return _scale()(grad * slope, ctx.by, 0, False), None, None, None

    return mojo_op(
        "tests::scale(Tensor x, float by, int shift=0, bool squared=False) -> Tensor",
        CODE,
        fake=lambda x, by, shift=0, squared=False: torch.empty_like(x),
        parameters=["squared"],
        backward=backward,
        setup_context=keep,
    )


def _reference(x: Tensor, by: float, shift: int, squared: bool) -> Tensor:
    return (x * x if squared else x) * by + shift


@compile_group("mojo_op", weight=2)
def test_forward_and_backward_with_other_operators() -> None:
    from torch_max_backend import max_backend

    def function(x: Tensor, op: Any) -> Tensor:
        # For `test_eager`, too: kernels that a graph needs are built together.
        narrow = op(x.detach().bfloat16(), 2.0, 1, True)
        return torch.tanh(op(x.t() + 1, 0.5, 3, True)) + op(x.t(), 2.0, 0, False), narrow

    torch.manual_seed(0)
    compiled = torch.compile(function, backend=max_backend, fullgraph=True)
    for size in (5, 7, 9):
        x = torch.randn(4, size, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        ours, theirs = compiled(x, _scale()), function(y, _reference)
        torch.testing.assert_close(ours, theirs)
        ours[0].sum().backward()
        theirs[0].sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@compile_group("mojo_op")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eager(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    torch.testing.assert_close(_scale()(x, 2.0, 1, True), _reference(x, 2, 1, True))


ACCUMULATE = """
from extensibility import InputTensor, OutputTensor, foreach, register
from layout import Coord
from max.gpu.host import DeviceContext


@register("tests_accumulate")
struct Accumulate:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        by: Float64,
        ctx: DeviceContext,
    ) raises:
        var factor = by.cast[output.dtype]()

        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var y, var factor} -> SIMD[
            output.dtype, width
        ]:
            return x.load[width](at) + y.load[width](at) * factor

        foreach[target=target](body, output, ctx)
"""


@cache
def _accumulate() -> Any:
    return mojo_op(
        "tests::accumulate(Tensor(a!) x, Tensor y, float by=1.0) -> ()",
        ACCUMULATE,
        fake=lambda x, y, by=1.0: None,
    )


@compile_group("mojo_op", weight=2)
def test_an_operator_that_writes_to_an_argument() -> None:
    from torch_max_backend import max_backend

    def function(x: Tensor, y: Tensor, op: Any) -> Tensor:
        rows = x * 1
        op(rows[1:], y, 3.0)
        op(x, rows)
        op(x[0], rows[1])
        return rows

    def reference(x: Tensor, y: Tensor, by: float = 1.0) -> None:
        x += y * by

    torch.manual_seed(0)
    x, y = torch.randn(3, 4), torch.randn(2, 4)
    ours, theirs = x.clone(), x.clone()
    compiled = torch.compile(function, backend=max_backend, fullgraph=True)
    torch.testing.assert_close(compiled(ours, y, _accumulate()), function(theirs, y, reference))
    torch.testing.assert_close(ours, theirs)
    _accumulate()(ours, x, 0.5)
    torch.testing.assert_close(ours, theirs + x * 0.5)


@compile_group("mojo_op")
def test_a_lowering_of_an_operator_that_writes_to_an_argument() -> None:
    from max.graph import TensorValue

    from torch_max_backend import map_to, max_backend

    @torch.library.custom_op("tests::halve", mutates_args={"x"})
    def halve(x: Tensor, by: float) -> Tensor:
        old = x.clone()
        x /= by
        return old

    halve.register_fake(lambda x, by: torch.empty_like(x))

    @map_to(torch.ops.tests.halve.default)
    def lowering(x: TensorValue, by: float) -> tuple[TensorValue, TensorValue]:
        return x, x / by

    x = torch.randn(5)
    ours, theirs = x.clone(), x.clone()
    compiled = torch.compile(lambda v: halve(v, 2.0) - v, backend=max_backend, fullgraph=True)
    torch.testing.assert_close(compiled(ours), halve(theirs, 2.0) - theirs)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("(Tensor(a!) x) -> Tensor(a!)", "nothing but new tensors"),
        ("(Tensor(a!)[] x) -> ()", "of type Tensor"),
    ],
)
def test_what_has_no_functional_counterpart(schema: str, words: str) -> None:
    from torch_max_backend import map_to

    with torch.library._scoped_library("tests", "FRAGMENT") as library:
        library.define(f"written{schema}")
        with pytest.raises(RegistrationError, match=words):
            map_to(torch.ops.tests.written.default)(lambda x: x)


def test_a_change_of_the_code_is_another_artifact(tmp_path: Path) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from torch_max_backend.cache.key import lowerings_digest
    from torch_max_backend.graph.signature import analyse

    file = tmp_path / "own.mojo"
    file.write_text("one")
    op = mojo_op("tests::changed(Tensor x) -> Tensor", file, fake=torch.empty_like)
    trace = analyse(make_fx(lambda x: (op(x),), tracing_mode="fake")(torch.ones(2)))
    before = lowerings_digest(trace)
    file.write_text("two")
    assert lowerings_digest(trace) != before


@pytest.mark.parametrize(
    ("schema", "parameters", "words"),
    [
        ("tests::a(Tensor? x) -> Tensor", [], "Tensor\\? x"),
        ("tests::b(Tensor x, int[] y) -> Tensor", [], "int\\[\\] y"),
        ("tests::c(Tensor x) -> int", [], "not int"),
        ("tests::d(Tensor x) -> Tensor", ["x"], "no scalar arguments x"),
    ],
)
def test_what_a_kernel_cannot_take_is_refused(
    schema: str, parameters: list[str], words: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.mojo"
    file.write_text("")
    with pytest.raises(RegistrationError, match=words):
        mojo_op(schema, file, fake=torch.empty_like, parameters=parameters)


def test_code_that_does_not_compile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend import CompilationError

    monkeypatch.delenv("TORCH_MAX_BACKEND_FALLBACK")
    file = tmp_path / "own.mojo"
    file.write_text("def broken(:\n")
    op = mojo_op("tests::broken(Tensor x) -> Tensor", file, fake=torch.empty_like)
    with pytest.raises(CompilationError, match="expected argument name"):
        op(torch.ones(2))


def test_missing_sources() -> None:
    with pytest.raises(RegistrationError, match="no Mojo sources"):
        mojo_op("tests::e(Tensor x) -> Tensor", "nowhere.mojo", fake=torch.empty_like)


def test_an_operator_without_lowering_says_what_to_do() -> None:
    from torch_max_backend import UnsupportedOperatorError, max_backend

    @torch.library.custom_op("tests::opaque", mutates_args=())
    def opaque(x: Tensor) -> Tensor:
        return x.clone()

    opaque.register_fake(torch.empty_like)
    with pytest.raises(UnsupportedOperatorError, match="mojo_op"):
        torch.compile(lambda x: opaque(x), backend=max_backend, fullgraph=True)(torch.ones(2))
