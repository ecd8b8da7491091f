"""What a newcomer reads after the likeliest mistakes. Others have tests beside what they are about:
forked children (tests/process), caches that cannot be written (tests/cache/unwritable), versions of
torch that lack something (tests/compat)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_max_backend import max_backend

X = torch.randn(2, 4)


def compiled(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, **{"backend": max_backend, **settings})


def double(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).relu()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": "mxa"}, "did you mean: 'max'"),
        ({"options": {"cahce": 1}}, "Did you mean 'cache'.*Known options"),
        ({"options": {"fallback": "never"}}, "fallback.*eager.*error"),
        ({"mode": "fastest"}, "Known modes: default"),
    ],
    ids=["name of the backend", "option", "value of an option", "mode"],
)
def test_a_slip_in_the_call_of_torch_compile(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=re.compile(words, re.S)):
        compiled(double, **settings)(X)


def test_tensors_on_several_devices() -> None:
    with pytest.raises(Exception, match=r"(?s)same device.*cpu and meta"):
        compiled(lambda a, b: a + b)(X, X.to("meta"))


def test_a_device_that_max_does_not_drive(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        compiled(double, options={"fallback": "eager"})(X.to("meta"))
    assert "not on 'meta'" in caplog.text
    assert ".to('cpu')" in caplog.text


def test_a_gpu_that_is_not_there() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(Exception, match=r"NVIDIA driver|not compiled with CUDA"):
        compiled(lambda a: double(a.cuda()))(X)


def test_complex_numbers_and_sizes_that_data_decide_are_no_mistakes() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    torch.testing.assert_close(compiled(lambda z: z * 2 + 1)(z), z * 2 + 1)
    chosen = compiled(lambda a: a[a > 0] * 2, options={"fallback": "eager"})(X)
    torch.testing.assert_close(chosen, X[X > 0] * 2)


def test_more_memory_than_there_is() -> None:
    def outer(a: torch.Tensor) -> torch.Tensor:
        return double(a[:, None] * a[None]) + a

    with pytest.raises(Exception, match=r"(?i)memory"):
        compiled(outer)(torch.empty(10**7))


def test_an_index_that_is_out_of_bounds() -> None:
    from torch_max_backend import IndexOutOfBoundsError

    with pytest.raises(IndexOutOfBoundsError, match=r"index 7 .* size 2 .*embedding"):
        compiled(lambda a, i: double(torch.nn.functional.embedding(i, a)))(X, torch.tensor([7]))
