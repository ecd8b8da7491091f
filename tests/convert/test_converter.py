"""Conversion of single nodes: what lowerings get, and what is checked of what they return.
Graphs are built, never compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tracing import traced
from torch_max_backend import (
    ConversionError,
    Refusal,
    UnsupportedDtypeError,
    UnsupportedOperatorError,
    map_to,
)
from torch_max_backend.registry.lowerings import registry

pytestmark = pytest.mark.xdist_group("compile-0")

aten = torch.ops.aten
# Operators for the tests to lower in their own ways.
ONE, TWO, SEVERAL = aten.hypot.default, aten.copysign.Tensor, aten.frexp.Tensor


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_max_backend.ops  # noqa: F401

    kept = {k: v for k, v in registry.items() if k not in (ONE, TWO, SEVERAL)}
    monkeypatch.setattr(registry, "lowerings", kept)


def build(function: Callable[..., Any], *arguments: Any, dynamic: bool = False) -> str:
    """The text of the MAX graph of a function."""
    from torch_max_backend.convert.converter import build_graph
    from torch_max_backend.engines.max.module import kernel_libraries, kernel_library
    from torch_max_backend.graph.capability import check_supported
    from torch_max_backend.graph.signature import analyse

    module = traced(function, *arguments, dynamic=dynamic)
    check_supported(module)
    trace = analyse(module)
    library = kernel_library(*kernel_libraries([trace]))
    return str(build_graph(trace, "g0", library)._mlir_op)


def program(x: Tensor, y: Tensor) -> Tensor:
    return torch.hypot(x, y)  # the line that errors name


def run(returned: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Build ``program`` with ``hypot`` lowered by a function of its first argument."""

    def lowering(self: Any, other: Any) -> Any:
        return returned(self)

    map_to(ONE, **options)(lowering)
    arguments = arguments or (torch.ones(2, 3), torch.ones(2, 3))
    return build(program, *arguments)


def test_a_right_lowering_builds() -> None:
    assert "mo.graph @g0" in run(lambda x: x)


@pytest.mark.parametrize(
    ("returned", "built"),
    [
        (lambda x: x.cast(_dtype("float64")), r"float64\['2', '3'\]"),
        (lambda x: x.cast(_dtype("int64")), r"int64\['2', '3'\]"),
        (lambda x: x.reshape((6,)), r"float32\['6'\]"),
        (lambda x: x.reshape((1, 2, 3)), r"float32\['1', '2', '3'\]"),
        (lambda x: x.reshape((3, 2)), r"float32\['3', '2'\]"),
        (lambda x: x[:1], r"float32\['1', '3'\]"),
    ],
    ids=["dtype", "integer", "lower rank", "higher rank", "transposed", "size"],
)
def test_what_is_not_as_torch_says_is_refused(returned: Any, built: str) -> None:
    with pytest.raises(ConversionError, match=rf"built {built}; torch says") as caught:
        run(returned)
    text = str(caught.value)
    assert "The lowering of aten.hypot.default" in text
    assert "torch says float32['2', '3']" in text
    assert "aten.hypot.default(f32[2, 3], f32[2, 3])" in text
    assert f"{__file__}:" in text
    assert "return torch.hypot(x, y)  # the line that errors name" in text


def _dtype(name: str) -> Any:
    from max.dtype import DType

    return getattr(DType, name)


@pytest.mark.parametrize(
    ("op", "function", "returned", "message"),
    [
        (ONE, torch.hypot, lambda x: (x, x), "returned 2 values; the operator returns 1"),
        (ONE, torch.hypot, lambda x: (), "returned 0 values; the operator returns 1"),
        (ONE, torch.hypot, lambda x: None, "left out a used output"),
    ],
    ids=["two", "none", "nothing"],
)
def test_a_wrong_number_of_results_is_refused(
    op: Any, function: Any, returned: Any, message: str
) -> None:
    with pytest.raises(ConversionError, match=message) as caught:
        run(returned)
    assert "aten.hypot.default(f32[2, 3], f32[2, 3])" in str(caught.value)


def test_operators_with_several_results() -> None:
    given: list[Any] = []

    def frexp(self: Any) -> Any:
        from max.dtype import DType

        from torch_max_backend.convert.context import current_node, expected, is_used

        given.append([expected(0), expected(1), is_used(0), is_used(1), current_node().node.name])
        return self, (self.cast(DType.int32) if is_used(1) else None)

    map_to(SEVERAL)(frexp)
    build(lambda x: torch.frexp(x)[0] + 1, torch.ones(2, 3))
    build(lambda x: torch.frexp(x)[1] + 1, torch.ones(2, 3))
    first, second = given
    assert (first[0].dtype.name, first[1].dtype.name) == ("float32", "int32")
    assert first[0].shape == (2, 3)
    assert first[0].rank == 2
    assert first[0].device.is_cpu()
    assert first[2:4] == [True, False]
    assert second[2:4] == [False, True]
    assert "frexp" in first[4]


def test_the_specification_holds_symbolic_dims() -> None:
    given: list[Any] = []

    def lowering(self: Any, other: Any) -> Any:
        from torch_max_backend.convert.context import expected

        given.append(expected().shape)
        return self

    map_to(ONE)(lowering)
    build(program, torch.ones(5, 3), torch.ones(5, 3), dynamic=True)
    ((first, second),) = given
    assert {str(first), str(second)} <= {"d0", "d1"}
    assert first != second


def test_there_is_no_context_outside_a_conversion() -> None:
    from torch_max_backend.convert.context import current_node

    with pytest.raises(LookupError):
        current_node()


def test_a_failing_lowering_is_named_with_its_cause() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("something inside")

    with pytest.raises(ConversionError, match=r"lowering of aten\.hypot\.default failed") as caught:
        run(fail)
    assert "something inside" in str(caught.value)
    assert __file__ in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_our_exceptions_keep_their_class() -> None:
    def fail(x: Any) -> Any:
        raise UnsupportedDtypeError("MAX has no counterpart of this.")

    with pytest.raises(UnsupportedDtypeError, match="no counterpart of this") as caught:
        run(fail)
    assert "in aten.hypot.default(f32[2, 3], f32[2, 3])" in str(caught.value)
    assert __file__ in str(caught.value)


def hinted(self: int, other: Any) -> Any:
    return self


def test_type_hints_of_lowerings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_MAX_BACKEND_BEARTYPE", raising=False)
    map_to(ONE)(hinted)
    arguments = (torch.ones(2), torch.ones(2))
    with pytest.raises(ConversionError, match="type hints of the lowering refused") as caught:
        build(program, *arguments)
    text = str(caught.value)
    assert "hinted" in text
    assert "self" in text
    assert "\x1b[" not in text
    monkeypatch.setenv("TORCH_MAX_BACKEND_BEARTYPE", "0")
    assert "mo.graph" in build(program, *arguments)


def test_wrong_result_hints_are_caught_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def lowering(self: Any, other: Any) -> int:
        return self

    monkeypatch.delenv("TORCH_MAX_BACKEND_BEARTYPE", raising=False)
    map_to(ONE)(lowering)
    with pytest.raises(ConversionError, match="type hints"):
        build(program, torch.ones(2), torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_values_arrive_wide_and_are_rounded(dtype: torch.dtype) -> None:
    seen: list[str] = []

    def keep(x: Any) -> Any:
        seen.append(x.dtype.name)
        return x

    text = run(keep, torch.ones(2, dtype=dtype), torch.ones(2, dtype=dtype))
    assert seen == ["float32"]
    assert text.count("mo.cast") == 3  # two arguments, one result


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_native_lowerings_get_sixteen_bit_values_as_they_are(dtype: torch.dtype) -> None:
    seen: list[str] = []

    def keep(x: Any) -> Any:
        seen.append(x.dtype.name)
        return x

    arguments = (torch.ones(2, dtype=dtype), torch.ones(2, dtype=dtype))
    text = run(keep, *arguments, native16=True)
    assert seen == [str(dtype).removeprefix("torch.")]
    assert "mo.cast" not in text


def test_native_lowerings_are_not_rounded_for() -> None:
    arguments = (torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.float16))
    with pytest.raises(ConversionError, match="built float32"):
        run(lambda x: x.cast(_dtype("float32")), *arguments, native16=True)


def test_arguments_arrive_by_name_and_kind() -> None:
    from max.dtype import DType
    from max.graph import DeviceRef, TensorValue

    given: dict[str, Any] = {}

    def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
        from max.graph import ops

        given.update(size=size, fill_value=fill_value, dtype=dtype, device=device)
        return ops.broadcast_to(ops.constant(fill_value, DType.float64, device), size)

    def lowering(self: Any, other: Any) -> Any:
        given.update(self=self)
        return self

    map_to(aten.full.default, override=True)(full)
    map_to(ONE)(lowering)
    build(
        lambda x: torch.hypot(x.double(), torch.full((2, 3), 1.5, dtype=torch.float64)),
        torch.ones(2, 3),
    )
    assert given["size"] == [2, 3]
    assert given["fill_value"] == 1.5
    assert given["dtype"] == DType.float64
    assert given["device"] == DeviceRef.CPU()
    assert isinstance(given["self"], TensorValue)


def test_symbolic_ints_arrive_as_dims_where_sizes_and_as_values_where_data() -> None:
    from max.graph import Dim, TensorValue, ops

    given: dict[str, Any] = {}

    def expand(self: Any, size: Any, *, implicit: bool = False) -> Any:
        given["size"] = size
        return ops.broadcast_to(self, size)

    def add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        given["other"] = other
        return self

    map_to(aten.expand.default, override=True)(expand)
    map_to(aten.add.Tensor, override=True)(add)
    build(lambda x, n: x.expand(n, 3) + n, torch.ones(1, 3), 5, dynamic=True)
    assert isinstance(given["size"][0], Dim)
    assert given["size"][1] == 3
    assert isinstance(given["other"], TensorValue)
    assert given["other"].dtype.name == "int64"
    assert given["other"].rank == 0


def test_constants_of_16_bit_floats_are_inputs() -> None:
    values = torch.tensor([0, 1, 1], dtype=torch.bfloat16)
    module = traced(lambda x: torch.cat([x, torch.tensor([0, 1, 1], dtype=torch.bfloat16)]), values)
    from torch_max_backend.graph.signature import analyse

    assert [i.kind for i in analyse(module).signature.inputs] == ["tensor", "constant"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.float64])
def test_embedded_constants(dtype: torch.dtype) -> None:
    values = torch.tensor([0, 1, 1], dtype=dtype)
    text = build(lambda x: torch.cat([x, torch.tensor([0, 1, 1], dtype=dtype)]), values)
    assert "mo.constant" in text


def test_mutated_arguments_are_stored() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x + 1

    text = build(function, torch.ones(3, 4))
    assert "!mo.buffer<[3, 4], f32" in text
    assert "buffer.store" in text or "mutable.store" in text


def test_graphs_of_the_same_program_are_the_same_text() -> None:
    def strip(text: str) -> str:
        return text.split("loc(")[0]

    first = build(lambda x, y: torch.cat([x, y]) + 1, torch.ones(5, 3), torch.ones(2, 3))
    second = build(lambda a, b: torch.cat([a, b]) + 1, torch.ones(5, 3), torch.ones(2, 3))
    assert strip(first) == strip(second)


def test_refusals_reach_the_user() -> None:
    def unless_square(self: Tensor) -> Refusal | None:
        return None if self.shape[0] == self.shape[1] else Refusal("it is not square")

    def lowering(self: Any, other: Any) -> Any:
        return self

    map_to(ONE, supports=unless_square)(lowering)
    build(program, torch.ones(3, 3), torch.ones(3, 3))
    with pytest.raises(UnsupportedOperatorError, match="it is not square"):
        build(program, torch.ones(2, 3), torch.ones(2, 3))
