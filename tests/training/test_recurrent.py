"""LSTMs and GRUs through ``torch.compile``, with gradients, beside eager PyTorch and float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tracing import traced_all
from torch_max_backend.graph.dispatch_override import whole

pytestmark = pytest.mark.xdist_group("recurrent layers")

own = torch.ops.torch_max_backend


@dataclass(frozen=True)
class Case:
    """A layer's sizes and settings, and the shape of its input."""

    shape: tuple[int, ...]
    hidden: int
    settings: dict[str, Any] = field(default_factory=dict)
    # Whether the caller gives the first states, and asks for their gradients.
    starts: bool = False


CASES = {
    "one unit": Case((4, 5, 2), 1),
    "one row": Case((5, 1, 3), 7, starts=True),
    "three rows": Case((4, 3, 3), 33, {"batch_first": False}),
    "rows first": Case((4, 6, 8), 16, {"batch_first": True}, starts=True),
    "two layers": Case((3, 5, 6), 10, {"num_layers": 2}),
    "both directions": Case((4, 5, 6), 7, {"num_layers": 2, "bidirectional": True}, starts=True),
    "both directions, few rows": Case((4, 2, 6), 20, {"bidirectional": True}),
    "no biases": Case((3, 16, 5), 130, {"bias": False}, starts=True),
    "many rows": Case((3, 33, 5), 17),
    "two steps": Case((2, 8, 5), 12),
    "one step": Case((1, 4, 5), 12, {"bidirectional": True}),
    "no batch": Case((6, 3), 9, starts=True),
    "a deep product": Case((3, 4, 3), 400),
}


@pytest.fixture(autouse=True)
def _recurrent_layers_are_traced() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    settings = {"engine": "steps", "fallback": "error"}
    return torch.compile(function, backend="max", options=settings, **options)


def _layer(kind: type[nn.RNNBase], case: Case) -> nn.RNNBase:
    torch.manual_seed(case.hidden)
    return kind(case.shape[-1], case.hidden, **case.settings)


def _arguments(layer: nn.RNNBase, case: Case) -> list[Tensor]:
    """The input, and the first states where the case has them."""
    x = torch.randn(case.shape)
    if not case.starts:
        return [x]
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = case.shape[:-1][0 if layer.batch_first else 1 :][:1] if len(case.shape) == 3 else ()
    states = 2 if isinstance(layer, nn.LSTM) else 1
    return [x, *(torch.randn(count, *batch, case.hidden) for _ in range(states))]


def _called(layer: nn.RNNBase) -> Callable[..., list[Tensor]]:
    def call(x: Tensor, *states: Tensor) -> list[Tensor]:
        given = states if len(states) > 1 else states[0] if states else None
        output, last = layer(x, given)
        return [output, *(last if isinstance(last, tuple) else [last])]

    return call


def _with_gradients(
    function: Callable[..., list[Tensor]],
    layer: nn.RNNBase,
    arguments: Sequence[Tensor],
    differentiated: bool,
) -> list[Tensor]:
    """Results, and the gradients of a loss with respect to parameters and, if ``differentiated``,
    arguments."""
    given = [t.detach().clone().requires_grad_(differentiated) for t in arguments]
    layer.zero_grad()
    found = function(*given)
    sum((v * v.detach().cos()).mean() for v in found).backward()
    gradients = [t.grad for t in (*layer.parameters(), *(given if differentiated else ()))]
    assert all(g is not None for g in gradients)
    return [t.detach().clone() for t in (*found, *gradients)]


def _close(found: Sequence[Tensor], theirs: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    for ours, eager, true in zip(found, theirs, exact, strict=True):
        assert (ours.shape, ours.dtype) == (eager.shape, eager.dtype)
        bound = 3 * (eager.double() - true).abs().max() + 1e-6
        assert (ours.double() - true).abs().max() <= bound


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_results_and_gradients(kind: type[nn.RNNBase], name: str) -> None:
    case = CASES[name]
    layer = _layer(kind, case)
    exact = copy.deepcopy(layer).double()
    arguments = _arguments(layer, case)
    function = _called(layer)
    # Where the caller gives the first states, also what asks for fewer gradients, and for none.
    for differentiated in (True, False)[: 1 + case.starts]:
        ours = _with_gradients(_compiled(function), layer, arguments, differentiated)
        theirs = _with_gradients(function, layer, arguments, differentiated)
        doubled = [t.double() for t in arguments]
        true = _with_gradients(_called(exact), exact, doubled, differentiated)
        _close(ours, theirs, true)
    if case.starts:
        with torch.no_grad():
            _close(_compiled(function)(*arguments), function(*arguments), _called(exact)(*doubled))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gradients_of_one_result(kind: type[nn.RNNBase], last: int) -> None:
    case = CASES["rows first"]
    layer = _layer(kind, case)
    arguments = _arguments(layer, case)

    def function(*given: Tensor) -> list[Tensor]:
        return [_called(layer)(*given)[-1 if last else 0]]

    ours = _with_gradients(_compiled(function), layer, arguments, True)
    theirs = _with_gradients(function, layer, arguments, True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_float64(kind: type[nn.RNNBase]) -> None:
    case = CASES["both directions"]
    layer = _layer(kind, case).double()
    arguments = [t.double() for t in _arguments(layer, case)]
    function = _called(layer)
    ours = _with_gradients(_compiled(function), layer, arguments, True)
    torch.testing.assert_close(ours, _with_gradients(function, layer, arguments, True))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_lengths_and_batches_of_one_compile(kind: type[nn.RNNBase]) -> None:
    layer = kind(6, 9, bidirectional=True)
    function = _called(layer)
    compiled = _compiled(function, dynamic=True)
    torch._dynamo.utils.counters.clear()
    for steps, batch in ((5, 4), (9, 3), (2, 7), (12, 5)):
        arguments = [torch.randn(steps, batch, 6)]
        # Dynamo does not enter it, and so unrolls where the input needs a gradient.
        with whole():
            ours = _with_gradients(compiled, layer, arguments, True)
        theirs = _with_gradients(function, layer, arguments, True)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("shape", [(5, 2, 6), (8, 40, 6)])
def test_threads_share_the_work(kind: type[nn.RNNBase], shape: tuple[int, ...]) -> None:
    layer = kind(6, 530 if shape[1] == 2 else 130)
    function = _called(layer)
    compiled, x = _compiled(function), torch.randn(shape)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = _with_gradients(compiled, layer, [x], True)
        torch.set_num_threads(3)
        together = _with_gradients(compiled, layer, [x], True)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-6)
    theirs = _with_gradients(function, layer, [x], True)
    torch.testing.assert_close(together, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [3, 6])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_nan_stays_in_its_row(kind: type[nn.RNNBase], batch: int) -> None:
    x = torch.randn(4, batch, 5)
    x[1, 2] = float("nan")
    with torch.no_grad():
        output = _compiled(_called(kind(5, 18)))(x)[0]
    assert output[1:, 2].isnan().all()
    assert not output[0].isnan().any()
    output[:, 2] = 0
    assert not output.isnan().any()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_an_empty_batch(kind: type[nn.RNNBase]) -> None:
    layer = kind(5, 18)
    with torch.no_grad():
        ours = _compiled(_called(layer))(torch.randn(4, 0, 5))
    assert [list(t.shape) for t in ours] == [[4, 0, 18]] + [[1, 0, 18]] * (len(ours) - 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_half_precision(kind: type[nn.RNNBase], dtype: torch.dtype) -> None:
    layer = kind(4, 6).to(dtype)
    x = torch.randn(3, 2, 4, dtype=dtype)
    with torch.no_grad():
        ours, theirs = _compiled(_called(layer))(x), _called(layer)(x)
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_projections() -> None:
    layer = nn.LSTM(4, 6, proj_size=3)
    function, arguments = _called(layer), [torch.randn(3, 2, 4)]
    ours = _with_gradients(_compiled(function), layer, arguments, True)
    theirs = _with_gradients(function, layer, arguments, True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_are_dropped_out_in_training_alone(kind: type[nn.RNNBase]) -> None:
    # Of the second layer's input nothing is left, of its output everything.
    layer = kind(4, 6, num_layers=2, dropout=1 - 1e-7)
    x = torch.randn(3, 5, 4)
    with torch.no_grad():
        compiled = _compiled(_called(layer))
        dropped, zeros = compiled(x)[0], compiled(torch.zeros_like(x))[0]
        torch.testing.assert_close(dropped, zeros)
        layer.eval()
        kept = _compiled(_called(layer))(x)[0]
        torch.testing.assert_close(kept, _called(layer)(x)[0], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(kept, dropped)


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_graphs_have_one_operator_a_layer(kind: type[nn.RNNBase], differentiated: bool) -> None:
    layer = kind(4, 6, num_layers=2)
    x = torch.randn(7, 3, 4, requires_grad=differentiated)
    graphs = traced_all(lambda x: layer(x)[0].sum(), x, dynamic=True)
    forward, backward = (
        [str(n.target) for n in g.graph.nodes if n.op == "call_function"] for g in graphs
    )
    name = kind.__name__.lower()
    assert forward.count(f"torch_max_backend.{name}_steps.default") == 2
    assert backward.count(f"torch_max_backend.{name}_steps_backward.default") == 2
    assert f"torch_max_backend.{name}_steps.default" not in backward
    assert not any("mkldnn" in t for t in (*forward, *backward))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_meaning_in_aten(name: str, reverse: bool) -> None:
    import torch_max_backend.graph.decompositions.recurrent  # noqa: F401  defines the operators

    parts = {"lstm": 4, "gru": 3}[name]
    sizes = [(3, 2, parts * 5), (parts * 5, 5), (2, 5), (2, 5)]
    inner, weight, *states = (
        torch.randn(s, dtype=torch.float64, requires_grad=True) for s in sizes
    )
    if name == "gru":
        states[0] = torch.randn(parts * 5, dtype=torch.float64, requires_grad=True)
    count = {"lstm": 3, "gru": 2}[name]
    op = getattr(own, f"{name}_steps")

    def results(*given: Tensor) -> tuple[Tensor, ...]:
        return op(*given, reverse)[:count]

    assert torch.autograd.gradcheck(results, (inner, weight, *states))
    torch.library.opcheck(
        op.default,
        (inner, weight, *states, reverse),
        test_utils=("test_schema", "test_faketensor"),
    )
