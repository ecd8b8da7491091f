"""How traced graphs are called: inputs, outputs, mutations, symbols."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tracing import traced

pytestmark = pytest.mark.xdist_group("compile-0")

ones = torch.ones


def analysed(function: Callable[..., Any], *arguments: Any, dynamic: bool = False) -> Any:
    from torch_max_backend.graph.signature import analyse

    return analyse(traced(function, *arguments, dynamic=dynamic))


def signature(function: Callable[..., Any], *arguments: Any, dynamic: bool = False) -> Any:
    return analysed(function, *arguments, dynamic=dynamic).signature


def kinds(items: list[Any]) -> list[tuple[str, int, str]]:
    return [(i.kind, i.index, i.source) for i in items]


def test_tensors_in_and_out() -> None:
    found = signature(lambda x, y: (x + y, x + 1), ones(2, 3), ones(3))
    assert found.arguments == 2
    assert kinds(found.inputs) == [("tensor", 0, ""), ("tensor", 1, "")]
    assert kinds(found.outputs) == [("value", 0, ""), ("value", 1, "")]
    assert not any(i.mutated for i in found.inputs)
    assert found.copy_back == []
    assert found.symbols == {}


def test_a_signature_is_plain_data() -> None:
    def function(x: Tensor, n: int) -> tuple[Any, ...]:
        x.add_(n)
        return x.t() + 1, x[: x.shape[0] % 3] + 1, n + 1

    found = signature(function, ones(5, 4), 7, dynamic=True)
    assert json.loads(json.dumps(asdict(found)))["arguments"] == found.arguments


def test_unused_arguments_are_no_inputs() -> None:
    module = traced(lambda x, y: x + y, ones(2), ones(2))
    add = next(n for n in module.graph.nodes if n.op == "call_function")
    add.args = (add.args[0], 1)
    from torch_max_backend.graph.signature import analyse

    found = analyse(module).signature
    assert found.arguments == 2
    assert kinds(found.inputs) == [("tensor", 0, "")]


def test_parameters_and_buffers_are_inputs() -> None:
    module = torch.nn.Linear(3, 2)
    module.register_buffer("shift", ones(2))
    found = signature(lambda x: module(x) + module.shift, ones(4, 3))
    assert [i.kind for i in found.inputs] == ["tensor"] * 4


def test_none_repeated_and_argument_outputs() -> None:
    module = traced(lambda x: (x + 1, x + 2), ones(2))
    output = next(n for n in module.graph.nodes if n.op == "output")
    first, second = output.args[0]
    placeholder = next(n for n in module.graph.nodes if n.op == "placeholder")
    output.args = ([first, None, second, first, placeholder, 7, 2.5, True],)
    from torch_max_backend.graph.signature import analyse

    found = analyse(module).signature
    assert kinds(found.outputs) == [
        ("value", 0, ""),
        ("none", -1, ""),
        ("value", 1, ""),
        ("value", 0, ""),
        ("input", 0, ""),
        ("scalar", -1, "7"),
        ("scalar", -1, found.outputs[6].source),
        ("scalar", -1, "True"),
    ]
    assert eval(found.outputs[6].source) == 2.5
    assert len(found.layouts) == 2


def test_contiguous_mutations_are_in_place() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x + 2

    trace = analysed(function, ones(3, 4))
    assert [i.mutated for i in trace.signature.inputs] == [True]
    assert trace.signature.copy_back == []
    ((placeholder, value),) = trace.stores
    assert placeholder is trace.placeholders[0]
    assert value.target is torch.ops.aten.add.Tensor
    assert len(trace.signature.layouts) == 1


@pytest.mark.parametrize(
    "tensor", [ones(4, 3).t(), ones(4, 6)[:, ::2], ones(0, 3)], ids=["transposed", "gaps", "empty"]
)
def test_other_mutations_are_copied_back(tensor: Tensor) -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x + 2

    trace = analysed(function, tensor)
    assert not any(i.mutated for i in trace.signature.inputs)
    assert trace.signature.copy_back == [(0, 1)]
    assert trace.stores == []
    assert len(trace.signature.layouts) == 2


def test_a_value_that_is_returned_and_written_is_one_result() -> None:
    from torch_max_backend.graph.signature import analyse

    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x + 2

    module = traced(function, ones(4, 3).t())
    written = next(n for n in module.graph.nodes if n.op == "call_function")
    output = next(n for n in module.graph.nodes if n.op == "output")
    output.args = ([written],)
    found = analyse(module).signature
    assert found.copy_back == [(0, 0)]
    assert len(found.layouts) == 1


def test_an_argument_that_is_only_written_is_an_input() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.copy_(y + 1)
        return y + 2

    found = signature(function, ones(3), ones(3))
    assert sorted((i.index, i.mutated) for i in found.inputs) == [(0, True), (1, False)]


def test_a_write_to_something_else_is_refused() -> None:
    from torch_max_backend import UnsupportedOperatorError
    from torch_max_backend.graph.signature import analyse

    module = traced(lambda x: x + 1, ones(3))
    add = next(n for n in module.graph.nodes if n.op == "call_function")
    with module.graph.inserting_after(add):
        copy = module.graph.call_function(torch.ops.aten.copy_.default, (add, add))
        copy.meta["val"] = add.meta["val"]
    with pytest.raises(UnsupportedOperatorError, match="not one of its arguments"):
        analyse(module)


def test_small_constants_are_embedded_and_large_ones_are_inputs() -> None:
    from torch_max_backend.graph.signature import EMBEDDED_CONSTANT_ELEMENTS as MOST

    def constant(size: int) -> Any:
        return analysed(lambda x: x + torch.tensor(list(range(size))), ones(size))

    small = constant(MOST)
    assert [t.tolist() for t in small.embedded.values()] == [list(range(MOST))]
    assert [i.kind for i in small.signature.inputs] == ["tensor"]
    large = constant(MOST + 1)
    assert large.embedded == {}
    assert [i.kind for i in large.signature.inputs] == ["tensor", "constant"]
    source = large.signature.inputs[1].source
    assert getattr(large.module, source).numel() == MOST + 1


def test_outputs_that_may_be_memory_of_an_argument_are_marked() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x + 1, x.view(-1), x.clone(), (x + 2).view(-1)

    found = signature(function, ones(2, 3))
    marked = [found.outputs[i].index in found.maybe_aliased for i in range(4)]
    assert marked == [False, True, True, False]


def test_outputs_that_may_share_memory_are_marked() -> None:
    module = traced(lambda x: ((x + 1), (x + 1).view(-1)), ones(2, 3))
    adds = [n for n in module.graph.nodes if n.target is torch.ops.aten.add.Tensor]
    adds[1].replace_all_uses_with(adds[0])
    module.graph.erase_node(adds[1])
    from torch_max_backend.graph.signature import analyse

    assert analyse(module).signature.maybe_aliased == [0, 1]


def test_symbols_come_from_int_arguments_or_sizes() -> None:
    found = signature(lambda x: x + 1, ones(5, 7), dynamic=True)
    assert set(found.symbols) == {"d0", "d1"}
    module = traced(lambda x: x + 1, ones(5, 7), dynamic=True)
    holders = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    for argument, axis in found.symbols.values():
        held = holders[argument]
        assert isinstance(held if axis < 0 else held.shape[axis], torch.SymInt)


def test_sizes_that_tensors_bind_need_no_carrier() -> None:
    found = signature(lambda x, y: torch.cat([x, y]), ones(5, 7), ones(3, 7), dynamic=True)
    assert [i.kind for i in found.inputs] == ["tensor", "tensor"]


def test_a_size_that_no_tensor_binds_is_carried() -> None:
    found = signature(lambda x, n: x.expand(n, 3) + 1, ones(1, 3), 5, dynamic=True)
    assert [i.kind for i in found.inputs] == ["tensor", "carrier"]
    (name,) = found.symbols
    assert found.inputs[1].source == name


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, y: x[: x.shape[0] % 5] + 1, {(8, 6): 3, (12, 6): 2}),
        (lambda x, y: x.new_zeros(max(x.shape[0], y.shape[0])) + 1, {(8, 6): 8, (3, 9): 9}),
    ],
    ids=["mod", "max"],
)
def test_expressions_beyond_max_are_carried(function: Any, values: dict[Any, int]) -> None:
    from torch_max_backend.graph.expressions import evaluator

    trace = analysed(function, ones(8, 2), ones(6, 2), dynamic=True)
    (text,) = trace.symbols.carried
    assert text in [i.source for i in trace.signature.inputs if i.kind == "carrier"]
    found = trace.signature
    module_sizes = [n.meta["val"] for n in trace.placeholders]
    for (x, y), expected in values.items():
        numbers = []
        for argument, axis in found.symbols.values():
            held = module_sizes[argument]
            hint = int((held if axis < 0 else held.shape[axis]).node.hint)
            numbers.append({8: x, 6: y}.get(hint, hint))
        assert evaluator([text], list(found.symbols))(*numbers) == [expected]


def test_numbers_used_as_data_are_scalars_and_not_sizes() -> None:
    found = signature(lambda x, n: x + n, ones(3, 4), 5, dynamic=True)
    (scalar,) = [i for i in found.inputs if i.kind == "scalar"]
    assert scalar.dtype == "int64"
    assert not [i for i in found.inputs if i.kind == "carrier"]
    assert eval(scalar.source, dict.fromkeys(found.symbols, 9)) == 9


def test_a_number_used_twice_as_data_is_one_scalar() -> None:
    found = signature(lambda x, n: (x + n) + n, ones(3, 4), 5, dynamic=True)
    assert [i.kind for i in found.inputs].count("scalar") == 1


def test_symbolic_outputs_are_expressions() -> None:
    found = signature(lambda x, n: (x + 1, n * 2), ones(3, 4), 5, dynamic=True)
    scalars = [o.source for o in found.outputs if o.kind == "scalar"]
    assert all(eval(s, dict.fromkeys(found.symbols, 9)) in (9, 18) for s in scalars)
    assert [o.kind for o in found.outputs].count("value") == 1


def test_names_of_symbols_and_arguments_do_not_matter() -> None:
    def one(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b]) + 1

    def other(unused: Tensor, later: Tensor) -> Tensor:
        return torch.cat([unused, later]) + 1

    shapes = [ones(5, 7), ones(3, 7)]
    more = [ones(11, 13), ones(17, 13)]
    assert signature(one, *shapes, dynamic=True) == signature(other, *more, dynamic=True)


def test_an_argument_of_another_type_is_refused() -> None:
    from torch_max_backend import UnsupportedError
    from torch_max_backend.graph.signature import analyse

    module = traced(lambda x: x + 1, ones(3))
    next(iter(module.graph.nodes)).meta["val"] = object()
    with pytest.raises(UnsupportedError, match="argument of type object"):
        analyse(module)


def test_a_submodule_is_refused_as_a_higher_order_operator() -> None:
    from torch_max_backend import UnsupportedOperatorError
    from torch_max_backend.graph.trace import attribute

    module = traced(lambda x: x + 1, ones(3))
    module.branch = torch.nn.Identity()
    with pytest.raises(UnsupportedOperatorError, match=r"higher-order operators") as caught:
        attribute(module, "branch")
    assert "torch.compiler.disable" in str(caught.value)
