"""What cannot be converted is named before anything is: operator, shapes, dtypes, line, remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tracing import traced
from torch_max_backend import (
    MaxBackendError,
    Refusal,
    UnsupportedDeviceError,
    UnsupportedDtypeError,
    UnsupportedOperatorError,
    max_backend,
)
from torch_max_backend.registry.lowerings import registry

pytestmark = pytest.mark.xdist_group("compile-0")

aten = torch.ops.aten


def check(function: Callable[..., Any], *arguments: Any) -> None:
    from torch_max_backend.graph.capability import check_supported
    from torch_max_backend.graph.passes.complex_pairs import real_pairs

    module = traced(function, *arguments)
    real_pairs(module)
    check_supported(module)


def raised(kind: type[MaxBackendError], function: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(kind) as caught:
        check(function, *arguments)
    return str(caught.value)


def without(monkeypatch: pytest.MonkeyPatch, *ops: Any) -> None:
    import torch_max_backend.ops  # noqa: F401

    monkeypatch.setattr(registry, "lowerings", {k: v for k, v in registry.items() if k not in ops})


def three(x: Tensor, y: Tensor) -> Tensor:
    a = torch.hypot(x, y)  # first
    b = torch.copysign(a, y)  # second
    return torch.hypot(b, b) + 1


def test_a_supported_graph_passes() -> None:
    check(lambda x: x + 1, torch.ones(3))


def test_every_operator_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, aten.hypot.default, aten.copysign.Tensor)
    arguments = (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(UnsupportedOperatorError) as caught:
        check(three, *arguments)
    assert caught.value.operators == ("aten.hypot.default", "aten.copysign.Tensor")
    text = str(caught.value)
    assert "cannot convert 2 operators" in text
    assert "aten.hypot.default(" in text
    assert "f64[2, 3]" in text
    assert "(2 times): no lowering is registered" in text
    assert "a = torch.hypot(x, y)  # first" in text
    assert "b = torch.copysign(a, y)  # second" in text
    assert text.count(f"{__file__}:") == 2
    assert "torch_max_backend.map_to" in text
    assert "torch.compiler.disable" in text


def test_one_operator_is_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, aten.hypot.default)
    text = raised(UnsupportedOperatorError, torch.hypot, torch.ones(2), torch.ones(2))
    assert "cannot convert 1 operator of this graph" in text
    assert "times)" not in text


def test_refused_operators_carry_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend import map_to

    without(monkeypatch, aten.hypot.default)

    def lowering(self: Any, other: Any) -> Any: ...

    def supports(other: Tensor) -> Refusal | None:
        assert isinstance(other, Tensor)
        return Refusal(f"other has {other.dim()} dims")

    map_to(aten.hypot.default, supports=supports)(lowering)
    text = raised(UnsupportedOperatorError, torch.hypot, torch.ones(2, 3), torch.ones(2, 3))
    assert "aten.hypot.default(f32[2, 3], f32[2, 3]): other has 2 dims" in text


def test_complex_operators_without_a_rule_name_the_operator_and_the_line() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.view_as_complex(x).acos().abs() + x.real.acos().sum()  # here

    text = raised(UnsupportedOperatorError, function, torch.ones(3, 2))
    assert "aten.acos.default(c64[3]): it has no rule for complex numbers" in text
    assert "# here" in text
    assert "convert 1 operator" in text


def test_complex_numbers_of_16_bits() -> None:
    text = raised(UnsupportedDtypeError, lambda x: x.real + 1, torch.ones(3, dtype=torch.complex32))
    assert "torch.complex32" in text
    assert f"{__file__}:" in text
    assert "Cast to a supported dtype" in text


def test_float8_tensors() -> None:
    text = raised(
        UnsupportedDtypeError, lambda x: x.to(torch.float8_e4m3fn).to(torch.float32), torch.ones(3)
    )
    assert "float8_e4m3fn" in text


@pytest.mark.parametrize("kind", ["meta"])
def test_devices_that_max_does_not_drive(kind: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x + 1  # elsewhere

    text = raised(UnsupportedDeviceError, function, torch.ones(2, 3, device=kind))
    assert f"not on {kind!r}" in text
    assert "[2, 3]" in text
    assert ".to('cpu')" in text
    assert "# elsewhere" in text


def module_of(value: Any) -> Any:
    """A graph of one argument, whose metadata is a real tensor."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = value
    graph.output((x,))
    return torch.fx.GraphModule({}, graph)


@pytest.mark.filterwarnings("ignore")
def test_sparse_tensors() -> None:
    from torch_max_backend.graph.capability import check_supported

    for sparse in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        with pytest.raises(UnsupportedDtypeError, match="sparse") as caught:
            check_supported(module_of(sparse))
        assert ".to_dense()" in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors() -> None:
    from torch_max_backend.graph.capability import check_supported

    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(UnsupportedDtypeError, match="quantized") as caught:
        check_supported(module_of(quantized))
    assert ".dequantize()" in str(caught.value)


def test_sizes_that_depend_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    aten_nonzero = replace(registry[aten.nonzero.default], sizes_from_data=False)
    monkeypatch.setitem(registry.lowerings, aten.nonzero.default, aten_nonzero)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        text = raised(UnsupportedOperatorError, lambda x: x.nonzero() + 1, torch.ones(3))
    assert "aten.nonzero.default(f32[3])" in text
    assert "the size of its result depends on the data" in text


def test_sizes_that_depend_on_data_inside_branches() -> None:
    def function(x: Tensor) -> Tensor:
        branches = (lambda v: v[v > 1].sum(), lambda v: v.sum())
        return torch.cond(x.sum() > 0, *branches, (x,))

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        text = raised(UnsupportedOperatorError, function, torch.ones(3))
    assert "a size that data decides, inside cond or while_loop, is not converted" in text


def test_numbers_that_depend_on_data() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.full_like(x, x.sum().item())

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        text = raised(UnsupportedOperatorError, function, torch.ones(3))
    assert (
        "aten._local_scalar_dense.default(f32[]): a Python number that depends on the data" in text
    )
    assert "aten.full_like.default(f32[3], " in text


def test_higher_order_operators() -> None:
    from torch._higher_order_ops.associative_scan import associative_scan_op

    from torch_max_backend.graph.capability import refusal

    node = torch.fx.Graph().call_function(associative_scan_op, (None, [], ()))
    found = refusal(node)
    assert found is not None
    assert "higher-order operator is not converted" in found.reason
    assert "cond, while_loop, map and scan are" in found.reason


@pytest.mark.parametrize(
    ("function", "argument", "kind"),
    [
        (lambda x: torch.view_as_complex(x).acos(), torch.ones(3, 2), UnsupportedOperatorError),
        (lambda x: x + 1, torch.ones(3, device="meta"), UnsupportedDeviceError),
        (lambda x: x.to(torch.float8_e5m2), torch.ones(3), UnsupportedDtypeError),
    ],
    ids=["complex", "meta", "float8"],
)
def test_torch_compile_raises_them_as_they_are(function: Any, argument: Tensor, kind: Any) -> None:
    torch._dynamo.reset()
    with pytest.raises(kind):
        torch.compile(function, backend=max_backend, fullgraph=True)(argument)
