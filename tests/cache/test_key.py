"""The cache key: everything that decides the artifact changes it, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tracing import traced
from torch_max_backend import map_to
from torch_max_backend.registry.lowerings import registry

pytestmark = pytest.mark.xdist_group("compile-0")

aten = torch.ops.aten


def analysed(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    from torch_max_backend.graph.signature import analyse

    return analyse(traced(function, *arguments, **options))


def parts_of(module: Any) -> dict[str, str]:
    from torch_max_backend.cache.key import components
    from torch_max_backend.graph.signature import analyse

    return components(analyse(module))


def key_of(module: Any) -> str:
    from torch_max_backend.cache.key import cache_key

    return cache_key(parts_of(module))


def key(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    return key_of(traced(function, *arguments, **options))


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


def written(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return x + y


X, Y = ones(4, 4), ones(4, 4)
# Pairs of programs that differ in one thing.
DIFFERENT: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
    "target": (
        lambda: key(lambda x, y: torch.add(x, y), X, Y),
        lambda: key(lambda x, y: torch.mm(x, y), X, Y),
    ),
    "overload": (
        lambda: key(lambda x: x.sum(), X),
        lambda: key(lambda x: x.sum([0, 1]), X),
    ),
    "order of arguments": (
        lambda: key(lambda x, y: (x + 1, x - y), X, Y),
        lambda: key(lambda x, y: (x + 1, y - x), X, Y),
    ),
    "which argument": (
        lambda: key(lambda x, y: (x + x, y + 1), X, Y),
        lambda: key(lambda x, y: (x + y, y + 1), X, Y),
    ),
    "number": (lambda: key(lambda x: x + 1, X), lambda: key(lambda x: x + 2, X)),
    "type of number": (lambda: key(lambda x: x + 1, X), lambda: key(lambda x: x + 1.0, X)),
    "sign of zero": (lambda: key(lambda x: x + 0.0, X), lambda: key(lambda x: x + -0.0, X)),
    "last digit": (
        lambda: key(lambda x: x + 0.1, X),
        lambda: key(lambda x: x + 0.10000000000000002, X),
    ),
    "keyword": (
        lambda: key(lambda x, y: torch.add(x, y, alpha=2), X, Y),
        lambda: key(lambda x, y: torch.add(x, y, alpha=3), X, Y),
    ),
    "keyword given": (
        lambda: key(lambda x, y: torch.add(x, y), X, Y),
        lambda: key(lambda x, y: torch.add(x, y, alpha=3), X, Y),
    ),
    "list": (
        lambda: key(lambda x: x.permute(0, 1, 2) + 1, ones(2, 2, 2)),
        lambda: key(lambda x: x.permute(0, 2, 1) + 1, ones(2, 2, 2)),
    ),
    "dtype": (
        lambda: key(lambda x: x + 1, ones(4)),
        lambda: key(lambda x: x + 1, ones(4, dtype=torch.float64)),
    ),
    "dtype of equal size": (
        lambda: key(lambda x: x + 1, ones(4, dtype=torch.int32)),
        lambda: key(lambda x: x + 1, ones(4, dtype=torch.float32)),
    ),
    "shape": (lambda: key(lambda x: x + 1, ones(4)), lambda: key(lambda x: x + 1, ones(5))),
    "rank": (lambda: key(lambda x: x + 1, ones(4)), lambda: key(lambda x: x + 1, ones(4, 1))),
    "strides": (
        lambda: key(lambda x: x + 1, ones(4, 4)),
        lambda: key(lambda x: x + 1, ones(4, 4).t()),
    ),
    "symbolic size": (
        lambda: key(lambda x: x + 1, ones(4, 3)),
        lambda: key(lambda x: x + 1, ones(4, 3), dynamic=True),
    ),
    "equal symbolic sizes": (
        lambda: key(lambda x, y: (x + 1, y + 1), ones(4), ones(5), dynamic=True),
        lambda: key(lambda x, y: (x + 1, y + 1), ones(4), ones(4), dynamic=True),
    ),
    "symbolic expression": (
        lambda: key(lambda x: x[: x.shape[0] // 2] + 1, ones(8), dynamic=True),
        lambda: key(lambda x: x[: x.shape[0] // 3] + 1, ones(8), dynamic=True),
    ),
    "constant": (
        lambda: key(lambda x: x + torch.tensor([1.0, 2.0]), ones(2)),
        lambda: key(lambda x: x + torch.tensor([1.0, 3.0]), ones(2)),
    ),
    "mutation": (lambda: key(written, X, Y), lambda: key(lambda x, y: x + 1 + y, X, Y)),
    "mutation in place or copied back": (
        lambda: key(written, ones(4, 4), Y),
        lambda: key(written, ones(4, 4).t(), Y),
    ),
    "outputs": (
        lambda: key(lambda x: (x + 1, x + 2), X),
        lambda: key(lambda x: (x + 2, x + 1), X),
    ),
    "number of outputs": (
        lambda: key(lambda x: (x + 1, x + 1 + 1), X),
        lambda: key(lambda x: x + 1 + 1, X),
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_difference_changes_the_key(what: str) -> None:
    one, other = DIFFERENT[what]
    assert one() != other()
    assert one() == one()


def test_every_part_of_every_node_counts() -> None:
    """Each is replaced, one at a time; no two texts of the graph may agree."""
    from torch_max_backend.cache.key import graph_text

    trace = analysed(lambda x, y: torch.cat([x + y, torch.mm(x, y)], 1).permute(1, 0) + 1.5, X, Y)
    texts = [graph_text(trace)]

    def note(node: Any, name: str, value: Any) -> None:
        before = getattr(node, name)
        setattr(node, name, value)
        texts.append(graph_text(trace))
        setattr(node, name, before)

    for node in trace.module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            for other in (value.double(), value[1:], value.unsqueeze(0), value.t()):
                note(node, "meta", {**node.meta, "val": other})
        if node.op == "call_function":
            note(node, "target", aten.sub.Tensor)
            note(node, "kwargs", {**node.kwargs, "alpha": 7})
            note(node, "kwargs", {**node.kwargs, "alpha": 7.0})
            note(node, "kwargs", {**node.kwargs, "beta": 7})
            for j in range(len(node.args)):
                note(node, "args", (*node.args[:j], 12345, *node.args[j + 1 :]))
            note(node, "args", (*node.args, None))
    output = next(n for n in trace.module.graph.nodes if n.op == "output")
    note(output, "args", ([*output.args[0], None],))
    assert len(texts) > 40
    assert len(set(texts)) == len(texts)
    assert graph_text(trace) == texts[0]


@pytest.mark.parametrize("part", ["torch", "max", "mojo", "kernels", "package", "target"])
def test_the_environment_is_part_of_the_key(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.cache import compatibility as module
    from torch_max_backend.registry import kernel_sources

    one = traced(lambda x: x + 1, X)
    before = key_of(one)
    versions = {"max": "max", "mojo": "mojo-compiler"}
    if part == "torch":
        monkeypatch.setattr(torch, "__version__", "0.0.1")
    elif part in versions:
        real = module.version
        monkeypatch.setattr(
            module, "version", lambda n: "0.0.1" if n == versions[part] else real(n)
        )
    elif part == "kernels":
        assert module.kernel_digest is kernel_sources.kernel_digest
        monkeypatch.setattr(module, "kernel_digest", lambda: "other kernels")
    elif part == "package":
        monkeypatch.setattr(module, "package_digest", lambda: "other sources")
    else:
        monkeypatch.setattr(module, "_target", lambda: "another machine")
    module.environment_components.cache_clear()
    try:
        assert set(module.environment_components()) >= {part}
        assert key_of(one) != before
    finally:
        monkeypatch.undo()
        module.environment_components.cache_clear()
    assert key_of(one) == before


def test_digests_follow_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.cache import compatibility as module
    from torch_max_backend.registry import kernel_sources

    package = module.package_digest.__wrapped__
    kernel = kernel_sources.kernel_digest.__wrapped__
    monkeypatch.setattr(module, "_PACKAGE", tmp_path)
    monkeypatch.setattr(kernel_sources, "kernel_sources", lambda: tmp_path)
    seen = []

    def note() -> None:
        seen.append((package(), kernel()))

    note()
    (tmp_path / "ops").mkdir()
    for suffix, place in ((".py", 0), (".mojo", 1)):
        file = tmp_path / "ops" / f"a{suffix}"
        for content in ("one", "two"):
            file.write_text(content)
            note()
            assert seen[-1][place] != seen[-2][place]
        file.rename(tmp_path / "ops" / f"b{suffix}")
        note()
        assert seen[-1][place] != seen[-2][place]
    assert len({s[0] for s in seen}) == 4
    assert len({s[1] for s in seen}) == 4


def test_the_target_names_the_machine() -> None:
    from torch_max_backend.cache.compatibility import _target

    assert "x86_64" in _target() or "aarch64" in _target() or "arm64" in _target()
    assert len(_target().splitlines()) >= 3


def make_lowering(number: float, *, default: float = 0.0) -> Callable[..., Any]:
    def lowering(self: Any, other: Any, kind: Any = default) -> Any:
        return self * number + kind

    return lowering


def other_lowering(self: Any, other: Any) -> Any:
    return self + 1


@pytest.fixture
def hypot_key(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    import torch_max_backend.ops  # noqa: F401

    monkeypatch.setattr(registry, "lowerings", dict(registry))
    map_to(aten.hypot.default, override=True)(other_lowering)
    module = traced(torch.hypot, X, Y)

    def key_with(function: Callable[..., Any], **options: Any) -> str:
        map_to(aten.hypot.default, override=True, **options)(function)
        return key_of(module)

    return key_with


def test_a_users_lowering_is_part_of_the_key(hypot_key: Callable[..., str]) -> None:
    keys = [
        hypot_key(make_lowering(1.0)),
        hypot_key(make_lowering(2.0)),  # closure
        hypot_key(make_lowering(1.0, default=3.0)),  # default
        hypot_key(make_lowering(1.0), native16=True),
        hypot_key(other_lowering),  # code
    ]
    assert len(set(keys)) == len(keys)
    assert hypot_key(make_lowering(1.0)) == keys[0]


def test_only_the_lowerings_of_a_graph_count(hypot_key: Callable[..., str]) -> None:
    module = traced(lambda x: x + 1, X)
    hypot_key(make_lowering(1.0))
    before = key_of(module)
    hypot_key(make_lowering(2.0))
    assert key_of(module) == before


def test_a_lowering_typed_at_a_prompt_counts(hypot_key: Callable[..., str]) -> None:
    def typed(source: str) -> Callable[..., Any]:
        names: dict[str, Any] = {}
        exec(source, names)
        return names["f"]

    keys = {
        hypot_key(typed("def f(self, other): return self + 1")),
        hypot_key(typed("def f(self, other): return self + 2")),
        hypot_key(typed("def f(self, other): return other + 1")),
        hypot_key(typed("def f(self, other): return (lambda: self + 3)()")),
        hypot_key(typed("def f(self, other): return (lambda: self + 4)()")),
    }
    assert len(keys) == 5


PROGRAM = """
from torch_max_backend.registry.digest import function_digest
def make(table):
    def f(self, other):
        return self if other in {"a", "b", "c", "d"} else table
    return f
print(function_digest(make({"x": 1})))
"""


def test_the_digest_of_a_lowering_is_the_same_in_each_process() -> None:
    digests = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            env={**__import__("os").environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_weights_are_not_part_of_the_key() -> None:
    one, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    assert not torch.equal(one.weight, other.weight)
    assert key(one, X) == key(other, X)
    before = key(one, X)
    with torch.no_grad():
        one.weight.zero_()
    assert key(one, X) == before


def test_large_constants_are_weights() -> None:
    def constant(value: float) -> str:
        return key(lambda x: x + torch.tensor([value] * 100), ones(100))

    assert constant(1.0) == constant(2.0)


def test_names_are_not_part_of_the_key() -> None:
    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Parameter(ones(4))

        def forward(self, x: Tensor) -> Tensor:
            y = x + self.first
            return torch.cat([y, y])

    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.ParameterList([ones(4)])

        def forward(self, values: Tensor) -> Tensor:
            moved = values + self.inner[0]
            return torch.cat([moved, moved])

    assert key(One(), X) == key(Other(), X)


def test_symbol_names_and_example_sizes_are_not_part_of_the_key() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y]) + 1

    one = key(program, ones(5, 7), ones(3, 7), dynamic=True)
    assert one == key(program, ones(11, 13), ones(17, 13), dynamic=True)
    # In this one torch has named other sizes before.
    three = traced(
        lambda a, x, y: (torch.cat([x, y]) + 1, a + 1), ones(2, 3), ones(5, 7), ones(3, 7),
        dynamic=True,
    )  # fmt: skip
    assert key_of(three) != one


def test_the_key_is_the_digest_of_its_parts() -> None:
    from torch_max_backend.cache.key import cache_key

    parts = parts_of(traced(lambda x: x + 1, X))
    assert set(parts) >= {"graph", "signature", "lowerings", "torch", "max", "mojo", "kernels"}
    assert all(isinstance(v, str) for v in parts.values())
    assert cache_key(parts) == cache_key(dict(reversed(parts.items())))
    for name in parts:
        assert cache_key({**parts, name: "changed"}) != cache_key(parts)
