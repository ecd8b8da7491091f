"""Keys of AOTAutograd's cache: ours leave inductor's half out, nobody else's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._functorch._aot_autograd.autograd_cache import (
    AOTAutogradCacheDetails,
    BypassAOTAutogradCache,
)
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.interpreters import run_python
from torch_max_backend.compat import autograd_key

pytestmark = pytest.mark.skipif(
    torch.__version__ < "2.13", reason="torch before 2.13 keeps its own keys: there is no such hook"
)

GRAPH = torch.fx.symbolic_trace(lambda x: x + 1)


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    autograd_key.install()
    with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
        yield


def _details(tag: str, *inputs: object) -> dict[str, object]:
    details = AOTAutogradCacheDetails.__new__(AOTAutogradCacheDetails)
    with torch.compiler.config.patch(cache_key_tag=tag):
        details._init_fx_graph_hash_details(GRAPH, list(inputs), {})
    return vars(details)


def test_only_our_keys_leave_inductor_out() -> None:
    x = torch.zeros(2)
    ours, theirs = _details(autograd_key.MARK + "1", x), _details("mine", x)
    assert "inductor_config" in theirs
    assert "inductor_config" not in ours
    assert ours["cache_key_tag"] == autograd_key.MARK + "1"
    assert ours["gm"] is GRAPH
    assert ours["example_inputs"] == [x]


def test_what_a_graph_is_traced_under_is_in_the_key() -> None:
    before = _details(autograd_key.MARK)
    torch.set_default_dtype(torch.float64)
    try:
        assert _details(autograd_key.MARK)["default_dtype"] != before["default_dtype"]
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        changed = _details(autograd_key.MARK)
        name = "deterministic_algorithms_settings"
        assert changed[name] != before[name]
    finally:
        torch.use_deterministic_algorithms(False)


def test_arguments_without_a_stable_form_are_not_cached() -> None:
    with pytest.raises(BypassAOTAutogradCache):
        _details(autograd_key.MARK, object())


def test_sources_of_triton_kernels_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    details = AOTAutogradCacheDetails.__new__(AOTAutogradCacheDetails)
    assert details.get_triton_source_codes_from_gm(GRAPH) == []
    wrapper = pytest.importorskip("torch._inductor.codegen.wrapper")
    name = "user_defined_triton_kernel_transitive_closure_source_code"
    monkeypatch.setattr(wrapper, name, lambda kernel: f"the source of {kernel}")
    kernels = {"call_function": ["add"]}
    monkeypatch.setattr(
        details, "_iter_triton_kernels_from_node", lambda node: iter(kernels.get(node.op, ()))
    )
    assert details.get_triton_source_codes_from_gm(GRAPH) == ["the source of add"]


def test_another_torch_keeps_its_own_keys() -> None:
    program = (
        "from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails as D\n"
        "del D._init_fx_graph_hash_details\n"
        "from torch_max_backend.compat import autograd_key\n"
        "autograd_key.install()\n"
        "assert not hasattr(D, '_init_fx_graph_hash_details')\n"
    )
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
