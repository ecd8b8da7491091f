"""On a GPU: a few models, forward and backward, beside eager PyTorch. ``pytest -m gpu``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.conformance.closeness import difference
from tests.conformance.tables import SHARES, share
from torch_max_backend import max_backend


def _has_gpu() -> bool:
    if not torch.cuda.is_available():
        return False  # without asking MAX, which takes seconds to import
    from max.driver import accelerator_count

    return accelerator_count() > 0


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _has_gpu(), reason="no GPU that both torch and MAX drive"),
]

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "elements": lambda x: torch.tanh(x) * x.exp().clamp(max=3) + x.sigmoid(),
    "rows": lambda x: (x.softmax(-1), x.sum(-1), x.amax(0), x.std(1)),
    "products": lambda x: F.gelu(x @ x.t()) @ x,
    "movement": lambda x: torch.cat([x.flip(0), x.roll(1, 1)], 1)[:, ::2].contiguous(),
    "order": lambda x: (x.sort(-1).values, x.argmax(-1), x.cumsum(0)),
    "indices": lambda x: x[torch.tensor([3, 0, 3], device=x.device)],
}


def _compiled(function: Any, **options: Any) -> Any:
    return torch.compile(
        function, backend=max_backend, fullgraph=True, options={"fallback": "error"}, **options
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_values_are_eagers(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    function = FUNCTIONS[name]
    x = torch.randn(16, 24, device="cuda").to(dtype)
    ours, theirs, truth = (
        tree_leaves(result)
        for result in (_compiled(function)(x), function(x), function(x.double()))
    )
    assert difference(ours, theirs, truth) is None


@pytest.mark.parametrize("own_stream", [False, True], ids=["default_stream", "own_stream"])
def test_what_torch_enqueues_comes_in_order(own_stream: bool) -> None:
    layer = nn.Linear(64, 64, device="cuda")
    compiled = _compiled(layer)
    x = torch.randn(32, 64, device="cuda")
    stream = torch.cuda.Stream() if own_stream else torch.cuda.default_stream()
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.stream(stream):
        for k in range(8):
            torch.cuda._sleep(20_000_000)  # so that what follows is enqueued long before it runs
            layer.weight.fill_(k + 1.0)
            x.mul_(-1.5)
            ours = compiled(x)
            kept = ours.clone()
            torch.cuda._sleep(2_000_000)
            del ours
            compiled(x * 2)  # may use the memory of the result that is gone
            theirs = layer(x)
            torch.cuda.synchronize()
            torch.testing.assert_close(kept, theirs, rtol=1e-4, atol=1e-3)


def test_reduce_overhead() -> None:
    model = _Block().cuda().eval()
    compiled = torch.compile(
        model, backend=max_backend, options={"fallback": "error", "mode": "reduce-overhead"}
    )
    with torch.no_grad():
        for _ in range(6):
            tokens = torch.randint(0, 50, (2, 9), device="cuda")
            torch.testing.assert_close(compiled(tokens), model(tokens), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("k", range(SHARES))
def test_rows_of_the_conformance_tables(k: int, tmp_path: Path) -> None:
    """One sample of each, as a package would have it."""
    from tests.gpu.carried import check, save
    from torch_max_backend.cache.targets import Target

    number = "{}{}".format(*torch.cuda.get_device_capability())
    target = Target.of(f"sm_{number}" + "a" * (int(number) >= 90))
    refused = save(share(k), target, tmp_path / "rows.pt")
    assert all("counted on CPU only" in reason for reason in refused)
    assert not {name: wrong for name, wrong in check(tmp_path / "rows.pt") if wrong}


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens)))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_transformer(dynamic: bool) -> None:
    torch.manual_seed(0)
    model = _Block().cuda().eval()
    compiled = _compiled(model, dynamic=dynamic)
    with torch.no_grad():
        for length in (9, 14) if dynamic else (9,):
            tokens = torch.randint(0, 50, (2, length), device="cuda")
            torch.testing.assert_close(compiled(tokens), model(tokens), atol=2e-5, rtol=2e-5)


def test_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 10)
    ).cuda()
    x, target = torch.randn(4, 3, 8, 8, device="cuda"), torch.arange(4, device="cuda")

    def gradients(called: Any) -> list[Tensor]:
        loss = F.cross_entropy(called(x), target)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    ours, theirs = gradients(_compiled(model)), gradients(model)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_arguments_of_two_devices_are_refused_or_run_by_torch() -> None:
    x, number = torch.randn(8, device="cuda"), torch.tensor(2.0)
    compiled = torch.compile(lambda a, b: a * b, backend=max_backend)
    torch.testing.assert_close(compiled(x, number), x * number)
