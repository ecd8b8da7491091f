"""``map_to``: what may be registered, and how arguments are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torch_max_backend import Refusal, RegistrationError, map_to
from torch_max_backend.registry.lowerings import Registry, bind, is_registered, registry

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry, "lowerings", {})
    return registry


def mm(self: Any, mat2: Any) -> Any:
    return ("mm", self, mat2)


def add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    return ("add", self, other, alpha)


def test_an_overload_is_registered_and_the_function_left_alone() -> None:
    assert map_to(aten.mm.default)(mm) is mm
    assert list(registry) == [aten.mm.default]
    assert registry[aten.mm.default].function is mm
    assert registry[aten.mm.default].name == "aten.mm.default"
    assert is_registered(aten.mm.default)
    assert not is_registered(aten.bmm.default)
    assert not is_registered("aten.mm.default")


def test_a_packet_registers_its_fitting_functional_overloads() -> None:
    map_to(aten.add)(add)
    assert aten.add.Tensor in registry
    assert aten.add.Scalar in registry
    assert aten.add.out not in registry
    assert aten.add_.Tensor not in registry
    # add.int(int a, int b) has other argument names
    assert all(not op._schema.is_mutable for op in registry)
    assert all("a" not in [x.name for x in op._schema.arguments] for op in registry)


def test_several_targets_share_a_lowering() -> None:
    map_to(aten.mm.default, aten.bmm.default)(mm)
    assert registry[aten.mm.default].function is registry[aten.bmm.default].function


def test_a_second_lowering_is_refused_by_name() -> None:
    map_to(aten.mm.default)(mm)
    with pytest.raises(RegistrationError, match="already has a lowering") as caught:
        map_to(aten.mm.default)(mm)
    assert f"{__name__}.mm" in str(caught.value)
    assert "override=True" in str(caught.value)


def test_override_replaces() -> None:
    map_to(aten.mm.default)(mm)

    def other(self: Any, mat2: Any) -> Any:
        return None

    map_to(aten.mm.default, override=True)(other)
    assert registry[aten.mm.default].function is other


def test_a_removed_lowering_may_be_registered_again() -> None:
    map_to(aten.mm.default)(mm)
    registry.remove(aten.mm.default)
    assert aten.mm.default not in registry
    map_to(aten.mm.default)(mm)


@pytest.mark.parametrize("op", [aten.add_.Tensor, aten.add.out, aten.relu_])
def test_what_writes_to_an_argument_is_refused(op: Any) -> None:
    def any_function(self: Any, other: Any = None, *, alpha: Any = 1, out: Any = None) -> Any: ...

    with pytest.raises(RegistrationError, match="writes to an argument") as caught:
        map_to(op)(any_function)
    assert "functional" in str(caught.value)
    assert len(registry) == 0


@pytest.mark.parametrize("target", ["aten.add", torch.add, None, torch.nn.ReLU])
def test_what_is_no_aten_operator_is_refused(target: Any) -> None:
    with pytest.raises(RegistrationError, match="takes ATen overloads"):
        map_to(target)(mm)


def unknown(self: Any, mat2: Any, extra: Any) -> Any: ...


def missing(self: Any) -> Any: ...


def positional(*args: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unknown, "has parameters that the schema does not: extra"),
        (missing, "lacks the schema's arguments: mat2"),
    ],
)
@pytest.mark.parametrize("target", [aten.mm.default, aten.mm])
def test_a_misfit_names_the_parameters_and_the_schema(
    function: Callable[..., Any], message: str, target: Any
) -> None:
    with pytest.raises(RegistrationError, match=message) as caught:
        map_to(target)(function)
    assert "aten::mm(Tensor self, Tensor mat2) -> Tensor" in str(caught.value)
    assert len(registry) == 0


def test_variable_arguments_are_refused() -> None:
    with pytest.raises(RegistrationError):
        map_to(aten.mm.default)(positional)


def test_a_parameter_with_a_default_may_be_beyond_the_schema() -> None:
    def table(self: Any, mat2: Any, kind: str = "plain") -> Any:
        return kind

    map_to(aten.mm.default)(table)
    arguments = bind(aten.mm.default, (1, 2), {})
    assert registry[aten.mm.default].call(arguments) == "plain"


def test_layout_arguments_may_be_left_out() -> None:
    def clone(self: Any) -> Any:
        return self

    def ones(size: Any, *, dtype: Any = None, device: Any = None) -> Any:
        return size

    map_to(aten.clone.default)(clone)
    map_to(aten.ones.default)(ones)
    arguments = bind(aten.clone.default, (3,), {"memory_format": torch.channels_last})
    assert registry[aten.clone.default].call(arguments) == 3


def test_arguments_are_bound_by_name_with_defaults() -> None:
    bound = bind(aten.add.Tensor, ("x", "y"), {})
    assert bound == {"self": "x", "other": "y", "alpha": 1}
    assert bind(aten.add.Tensor, ("x", "y"), {"alpha": 2})["alpha"] == 2
    assert bind(aten.add.Tensor, ("x",), {"other": "y"})["other"] == "y"
    assert bind(aten.sum.dim_IntList, ("x", None), {}) == {
        "self": "x", "dim": None, "keepdim": False, "dtype": None,
    }  # fmt: skip


def test_reserved_names_carry_an_underscore() -> None:
    def random(self: Any, from_: Any, to: Any, *, generator: Any = None) -> Any:
        return (from_, to)

    op = aten.random.__getattr__("from")
    map_to(op)(random)
    assert registry[op].call(bind(op, ("x", 2, 5), {})) == (2, 5)


def test_a_refusal_sees_the_arguments_it_asks_for() -> None:
    def unless_one(alpha: Any) -> Refusal | None:
        return None if alpha == 1 else Refusal(f"alpha is {alpha}")

    map_to(aten.add.Tensor, supports=unless_one)(add)
    lowering = registry[aten.add.Tensor]
    assert lowering.refusal(bind(aten.add.Tensor, (1, 2), {})) is None
    assert lowering.refusal(bind(aten.add.Tensor, (1, 2), {"alpha": 3})) == Refusal("alpha is 3")


def test_without_a_check_nothing_is_refused() -> None:
    map_to(aten.mm.default)(mm)
    assert registry[aten.mm.default].refusal({}) is None


def test_flags_are_kept() -> None:
    map_to(aten.mm.default, native16=True, kernels="base")(mm)
    map_to(aten.bmm.default)(mm)
    assert registry[aten.mm.default].native16
    assert registry[aten.mm.default].kernels == "base"
    assert not registry[aten.bmm.default].native16
    assert not registry[aten.bmm.default].kernels


def test_the_library_may_depend_on_the_arguments() -> None:
    map_to(aten.mm.default, kernels=lambda mat2: "base" if mat2 else None)(mm)
    map_to(aten.bmm.default, kernels="base")(mm)
    map_to(aten.add.Tensor)(add)
    assert registry[aten.mm.default].libraries({"self": 1, "mat2": 2}) == ("base",)
    assert registry[aten.mm.default].libraries({"self": 1, "mat2": 0}) == ()
    assert registry[aten.bmm.default].libraries({}) == ("base",)
    assert registry[aten.add.Tensor].libraries({}) == ()


def typed(self: int, mat2: int) -> int:
    return self + mat2


def test_type_hints_are_checked_unless_the_environment_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from beartype.roar import BeartypeCallHintViolation

    map_to(aten.mm.default)(typed)
    lowering = registry[aten.mm.default]
    monkeypatch.delenv("TORCH_MAX_BACKEND_BEARTYPE", raising=False)
    assert lowering.call({"self": 1, "mat2": 2}) == 3
    with pytest.raises(BeartypeCallHintViolation, match="mat2"):
        lowering.call({"self": 1, "mat2": 2.5})
    monkeypatch.setenv("TORCH_MAX_BACKEND_BEARTYPE", "0")
    assert lowering.call({"self": 1, "mat2": 2.5}) == 3.5
