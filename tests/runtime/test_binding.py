"""What the runtime hands to a model and makes of its results, with a stand-in for the model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.runtime.executables import Recorder, executable, fresh

pytestmark = pytest.mark.xdist_group("compile-0")


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8],
)
def test_arguments_and_results_are_the_same_memory(dtype: torch.dtype) -> None:
    from torch_max_backend.engines.max.buffers import to_buffer, to_tensor

    tensor = torch.zeros(3, 4, dtype=dtype)
    buffer = to_buffer(tensor)
    assert buffer._data_ptr() == tensor.data_ptr()
    back = to_tensor(buffer)
    assert back.data_ptr() == tensor.data_ptr()
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    back.fill_(1)
    assert tensor.bool().all()


def test_the_memory_of_a_result_outlives_its_buffer() -> None:
    from torch_max_backend.engines.max.buffers import to_buffer, to_tensor

    result = to_tensor(to_buffer(torch.full((1000,), 3.0)))
    torch.full((1000,), 4.0)
    assert bool((result == 3).all())


def test_tensors_of_all_shapes_become_buffers(tensor_shapes: list[tuple[int, ...]]) -> None:
    from torch_max_backend.engines.max.buffers import plain, to_buffer, to_tensor

    for shape in tensor_shapes:
        tensor = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
        for variant in (tensor, tensor.transpose(0, -1) if tensor.dim() else tensor):
            torch.testing.assert_close(to_tensor(to_buffer(plain(variant))), variant)


def test_what_is_not_plain_is_copied_and_the_rest_is_not() -> None:
    from torch_max_backend.engines.max.buffers import plain

    tensor = torch.arange(12.0).reshape(3, 4)
    assert plain(tensor) is tensor
    assert plain(tensor[1:]).data_ptr() == tensor[1:].data_ptr()
    for odd in (tensor.t(), tensor[:, ::2], torch._neg_view(tensor), torch.ones(1).expand(5)):
        made = plain(odd)
        assert made.is_contiguous()
        assert not made.is_neg()
        torch.testing.assert_close(made, odd.clone())
    conjugate = torch.view_as_real(torch.ones(2, dtype=torch.complex64).conj().resolve_conj())
    assert plain(conjugate) is conjugate


def test_an_argument_reaches_the_model_without_a_copy() -> None:
    model = Recorder()
    run = executable(model, inputs=[("tensor", 0)], outputs=[])
    for x in (torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(4)[1:]):
        run([x])
        assert model.pointer() == x.data_ptr()


def test_the_argument_list_is_emptied() -> None:
    arguments = [torch.ones(3)]
    executable(Recorder(), inputs=[("tensor", 0)], outputs=[])(arguments)
    assert arguments == []


def test_the_buffer_of_a_parameter_is_kept_while_its_memory_stays() -> None:
    model = Recorder()
    run = executable(model, inputs=[("tensor", 0)], outputs=[], static=(0,))
    p = torch.nn.Parameter(torch.ones(3, 4))
    run([p])
    first = model.calls[-1][0]
    with torch.no_grad():
        p.add_(1)
    run([p])
    assert model.calls[-1][0] is first
    p.data = torch.ones(3, 4)
    run([p])
    assert model.calls[-1][0] is not first
    assert model.pointer() == p.data_ptr()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.view(4, 3),
        lambda t: t.view(4, 3).t(),
        lambda t: t.view(torch.int32),
        lambda t: t[:2],
        lambda t: t.clone(),
    ],
    ids=["shape", "strides", "dtype", "size", "pointer"],
)
def test_a_kept_buffer_is_checked(change: Callable[[Tensor], Tensor]) -> None:
    from torch_max_backend.engines.max.buffers import to_tensor

    model = Recorder()
    run = executable(model, inputs=[("tensor", 0)], outputs=[], static=(0,))
    p = torch.arange(12.0).reshape(3, 4)
    run([p])
    changed = change(p)
    run([changed])
    torch.testing.assert_close(to_tensor(model.calls[-1][0]), changed.contiguous())


def test_a_strided_parameter_is_read_anew_at_each_call() -> None:
    from torch_max_backend.engines.max.buffers import to_tensor

    model = Recorder()
    run = executable(model, inputs=[("tensor", 0)], outputs=[], static=(0,))
    p = torch.arange(12.0).reshape(3, 4).t()
    run([p])
    p.zero_()
    run([p])
    assert bool((to_tensor(model.calls[-1][0]) == 0).all())


@pytest.mark.parametrize("static", [(), (0,)])
def test_a_strided_mutated_argument_is_copied_back(static: tuple[int, ...]) -> None:
    from torch_max_backend.engines.max.buffers import to_tensor

    def write(buffers: list[Any]) -> list[Any]:
        to_tensor(buffers[0]).add_(1)
        return []

    run = executable(write, inputs=[("tensor", 0, "", "", True)], outputs=[], static=static)
    base = torch.zeros(4, 4)
    run([base[:, ::2]])
    run([base[:, ::2]])
    torch.testing.assert_close(base, torch.tensor([[2.0, 0.0, 2.0, 0.0]]).expand(4, 4))


def test_outputs_that_share_memory_are_separated() -> None:
    shared = fresh(2, 3)
    run = executable(
        lambda buffers: [buffers[0], shared, shared, fresh(2, 3)],
        inputs=[("tensor", 0)],
        outputs=[("value", i) for i in range(4)],
    )
    for _ in range(3):
        x = torch.ones(2, 3)
        results = run([x])
        pointers = {t.data_ptr() for t in [x, *results]}
        assert len(pointers) == 5


@pytest.mark.parametrize("strided", [False, True])
def test_results_are_never_the_memory_of_a_parameter_that_moves(strided: bool) -> None:
    run = executable(
        lambda buffers: [buffers[1]],
        inputs=[("tensor", 0), ("tensor", 1)],
        outputs=[("value", 0)],
        static=(0, 1),
    )
    p = torch.nn.Parameter(torch.ones(2, 3))
    other = torch.ones(3, 2).t() if strided else torch.ones(2, 3)
    seen = []
    for _ in range(3):
        for _ in range(2):
            run([other, p])[0].zero_()
            assert bool((p == 1).all())
        seen.append(p.data)
        p.data = torch.ones(2, 3)


@pytest.mark.parametrize("suspicious", [[], [0]])
def test_the_memory_of_a_parameter_that_was_replaced_is_free(suspicious: list[int]) -> None:
    run = executable(
        lambda buffers: [fresh(2, 3)],
        inputs=[("tensor", 0)],
        outputs=[("value", 0)],
        static=(0,),
        maybe_aliased=suspicious,
    )
    memory = np.ones((2, 3), np.float32)
    left = weakref.ref(memory)
    p = torch.from_numpy(memory)
    run([p])
    run([p])
    del memory, p
    assert left() is not None
    run([torch.ones(2, 3)])
    assert left() is None


def test_outputs_for_backward_alone_may_share_memory() -> None:
    shared = fresh(2, 3)
    run = executable(
        # Shown; for backward: shared with that, with each other, views of arguments.
        lambda buffers: [shared, shared, *[fresh(2, 3)] * 2, buffers[0], buffers[1], buffers[0]],
        inputs=[("tensor", 0), ("tensor", 1)],
        outputs=[("value", i) for i in range(7)],
        internal=[1, 2, 3, 4, 5, 6],
        views=[(4, 0), (5, 1)],
    )
    x, weight = torch.ones(4, 3)[1:3], torch.nn.Parameter(torch.ones(2, 3))
    for _ in range(3):
        with torch.no_grad():
            results = run([x, weight])
        shown, of_shown, one, other, view, of_weight, copied = results
        assert shown.data_ptr() != of_shown.data_ptr()
        assert one.data_ptr() == other.data_ptr()
        assert view.data_ptr() == x.data_ptr()
        assert of_weight.data_ptr() == weight.data_ptr()
        assert copied.data_ptr() != x.data_ptr(), "torch does not take it for a view"
        version = view._version
        x.add_(1)
        assert view._version == version + 1, "backward would not notice the write"
        torch.testing.assert_close(view, x)


def test_a_first_call_with_empty_tensors_settles_nothing() -> None:
    run = executable(lambda buffers: [buffers[0]], inputs=[("tensor", 0)], outputs=[("value", 0)])
    run([torch.empty(0, 3)])
    for _ in range(2):
        x = torch.ones(2, 3)
        assert run([x])[0].data_ptr() != x.data_ptr()


def test_an_output_that_is_only_sometimes_memory_of_a_copy() -> None:
    run = executable(lambda buffers: [buffers[0]], inputs=[("tensor", 0)], outputs=[("value", 0)])
    run([torch.ones(3, 2).t()])
    x = torch.ones(2, 3)
    assert run([x])[0].data_ptr() != x.data_ptr()


def test_constants_are_not_the_memory_of_results() -> None:
    constant = torch.ones(100)
    run = executable(
        lambda buffers: [buffers[0]],
        inputs=[("constant", -1, "c")],
        outputs=[("value", 0)],
        constants={"c": constant},
    )
    run([])[0].zero_()
    assert bool((run([])[0] == 1).all())
    assert bool((constant == 1).all())


def test_outputs_of_every_kind() -> None:
    run = executable(
        lambda buffers: [fresh(2)],
        inputs=[("tensor", 1)],
        outputs=[
            ("scalar", -1, "d0 * 2"),
            ("none",),
            ("value", 0),
            ("input", 1),
            ("scalar", -1, "d0 % 3"),
            ("value", 0),
        ],
        layouts=None,
        symbols={"d0": (0, -1)},
    )
    x = torch.ones(2)
    double, nothing, value, same, rest, again = run([7, x])
    assert (double, nothing, rest) == (14, None, 1)
    assert same is x
    assert value is again


def test_numbers_reach_the_model_as_shapes_and_as_data() -> None:
    from torch_max_backend.engines.max.buffers import to_tensor

    model = Recorder()
    run = executable(
        model,
        inputs=[
            ("carrier", -1, "d0 % 4"),
            ("scalar", -1, "d0 + d1", "int64"),
            ("scalar", -1, "d0 / 2", "float64"),
            ("scalar", -1, "d0 > d1", "bool"),
        ],
        outputs=[],
        symbols={"d0": (0, -1), "d1": (1, 1)},
    )
    run([7, torch.ones(2, 5)])
    carrier, total, half, larger = (to_tensor(b) for b in model.calls[-1])
    assert carrier.shape == (3, 0)
    assert (total.dtype, total.item()) == (torch.int64, 12)
    assert (half.dtype, half.item()) == (torch.float64, 3.5)
    assert (larger.dtype, larger.item()) == (torch.bool, True)


@pytest.mark.parametrize(
    ("layout", "given", "shape", "strides"),
    [
        ({"order": (1, 0)}, (4, 3), (3, 4), (1, 3)),
        ({"order": (2, 0, 1)}, (4, 2, 3), (2, 3, 4), (3, 1, 6)),
        ({"narrowed": (0,), "sizes": ("d0", "3")}, (1, 3), (5, 3), (0, 1)),
        ({"sizes": ("2", "3"), "strides": ("d0", "2")}, (2, 3), (2, 3), (5, 2)),
    ],
)
def test_results_get_the_strides_of_their_layout(
    layout: dict[str, Any], given: tuple[int, ...], shape: tuple[int, ...], strides: Any
) -> None:
    from torch_max_backend.graph.signature_schema import Layout

    run = executable(
        lambda buffers: [fresh(*given)],
        inputs=[],
        outputs=[("value", 0)],
        layouts=[Layout(**layout)],
        symbols={"d0": (0, -1)},
    )
    (result,) = run([5])
    assert (tuple(result.shape), result.stride()) == (shape, strides)


def test_a_failing_model_raises_execution_error_with_its_arguments() -> None:
    from torch_max_backend import ExecutionError

    def fail(buffers: list[Any]) -> list[Any]:
        raise ValueError("rebind shape check failed")

    run = executable(fail, inputs=[("tensor", 1)], outputs=[])
    with pytest.raises(ExecutionError) as caught:
        run([3, torch.ones(2, 3)])
    text = str(caught.value)
    assert "rebind shape check failed" in text
    assert "torch.float32[2, 3] on cpu" in text
    assert "eager PyTorch" in text
    assert isinstance(caught.value.__cause__, ValueError)


def test_pieces_of_memory_overlap_where_they_share_a_byte() -> None:
    from torch_max_backend.engines.max.extents import Extents

    taken = Extents([(50, 60), (10, 20), (15, 30), (16, 18), (40, 40)])
    assert taken.empty
    shared = [(29, 31), (5, 11), (12, 13), (0, 100), (59, 60)]
    assert all(taken.overlap(extent) for extent in shared)
    apart = [(30, 50), (0, 10), (60, 70), (17, 17)]
    assert not any(taken.overlap(extent) for extent in apart)
    taken.add((35, 40))
    assert taken.overlap((39, 45))
    assert not taken.overlap((30, 35))


def test_complex_arguments_are_what_they_were_after_a_failure() -> None:
    from torch_max_backend.runtime.complex_adapter import with_pairs

    def fails(arguments: list[Any]) -> list[Any]:
        assert arguments[0].dtype is torch.float32
        raise ValueError("not today")

    nothing: dict[str, Any] = {"pair_outputs": (), "inputs": (), "copy_back": (), "outputs": ()}
    function = with_pairs(fails, SimpleNamespace(pairs=(0,), **nothing))  # type: ignore[arg-type]
    x = torch.ones(3, dtype=torch.complex64)
    arguments = [x]
    with pytest.raises(ValueError, match="not today"):
        function(arguments)
    assert arguments[0] is x
