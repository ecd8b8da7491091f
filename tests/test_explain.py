"""What is said of a model before it is compiled."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

from tests.driver.test_partitioned import unknown
from torch_max_backend import Explanation, OptionError, explain, max_backend
from torch_max_backend.__main__ import main
from torch_max_backend.cache import store
from torch_max_backend.explanation import explained


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.inner(x).tanh())
        torch._dynamo.graph_break("a rest")
        y = (unknown(y).sin() * 2).exp().cos() + y.softmax(-1) @ x.t()[:, :6] - y.log_softmax(-1)
        return y.sum()


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain(_Net(), torch.randn(6, 6), options={"cache": False, "min_ops": 2})


def test_graphs_breaks_and_parameters(found: Explanation) -> None:
    assert [g.kind for g in found.graphs] == ["forward", "backward"] * 2
    assert found.parameters == 42
    assert found.parameter_bytes == 168
    assert len(found.breaks) == 1
    assert "test_explain.py" in found.breaks[0].where
    assert found.compiles == 0
    assert {p.engine for g in found.graphs for p in g.parts} == {"steps"}
    assert 0.5 < found.lowered < 1
    assert found.graphs[0].saved > 0


def test_modules_that_max_compiles_are_counted(max_engine: None) -> None:
    found = explain(_Net(), torch.randn(6, 6), options={"cache": False, "min_ops": 2})
    # Each forward graph with its backward graph.
    assert found.compiles == 2
    assert "2 to compile" in str(found)
    assert {p.engine for g in found.graphs for p in g.parts} == {"max"}


def test_what_is_in_eager_has_a_reason_and_a_line(found: Explanation) -> None:
    eager = [o for g in found.graphs for o in g.operators if o.place == "eager"]
    told = [o for o in eager if o.name == "tests.unknown.default"]
    assert [o.count for o in told] == [1, 1]
    assert "outside PyTorch" in told[0].reason
    assert "unknown(y).sin()" in told[0].where


def test_what_was_decomposed(found: Explanation) -> None:
    taken = {o.name for g in found.graphs for o in g.operators if o.place == "max"}
    apart = {name for g in found.graphs for name in g.decomposed}
    assert "aten._softmax.default" in taken
    assert "aten._softmax_backward_data.default" in apart
    assert not taken & apart


def test_the_order_of_parts(found: Explanation) -> None:
    steps = found.graphs[2].steps
    assert "tests.unknown.default" in steps
    assert [s for s in steps if s.startswith("part")] == [
        f"part {k}" for k in range(len(found.graphs[2].parts))
    ]


def test_every_form_tells_the_same(found: Explanation) -> None:
    text, table, data = str(found), found.markdown(), json.loads(found.json())
    picture = ElementTree.fromstring(found.svg())
    drawn = " ".join(e.text or "" for e in picture.iter())
    for form in (text, table, drawn):
        assert "tests.unknown.default" in form
        assert "4 graphs, 1 break" in form
    assert data["graphs"][0]["kind"] == "forward"
    assert data["compiles"] == found.compiles


def test_a_model_runs_in_eager_and_keeps_its_gradients() -> None:
    net, x = _Net().eval(), torch.randn(6, 6)
    expected = net(x)
    with explained() as found:
        result = torch.compile(net, backend=max_backend)(x)
    torch.testing.assert_close(result, expected)
    result.backward()
    assert net.inner.weight.grad is not None
    assert len(found.graphs) == 4


def test_symbolic_sizes_are_named() -> None:
    found = explain(lambda x: (x.sin() + 1).cos(), torch.randn(3, 5), dynamic=True)
    assert len(found.graphs[0].dynamic) == 2


def test_why_an_artifact_is_missing(private_cache: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return (x.sin() + 1).cos()

    x = torch.randn(3)
    (part,) = explain(function, x).graphs[0].parts
    assert not part.cached
    assert part.miss == "no artifact of this graph"
    from tests.tracing import traced
    from torch_max_backend.driver.partitioned import Partitioned
    from torch_max_backend.options import Options

    (piece,) = Partitioned(traced(function, x), (), Options()).pieces
    assert piece.job is not None
    store.put("0" * 64, b"", {**piece.job.parts, "max": "1.0", "target": "another"})
    (part,) = explain(function, x).graphs[0].parts
    assert part.miss == "its artifact is of another max and target"
    store.put(piece.job.entry, b"", piece.job.parts)
    (part,) = explain(function, x).graphs[0].parts
    assert part.cached
    assert explain(function, x).compiles == 0


def test_a_bad_option_is_an_error() -> None:
    with pytest.raises(OptionError, match="cahce"):
        explain(torch.sin, torch.ones(2), options={"cahce": True})


SCRIPT = """
import sys, torch
print(sys.argv[1:])
f = torch.compile(lambda x: (x.sin() + 1).cos(), backend="max")
print(f(torch.zeros(2)))
"""


@pytest.mark.parametrize("form", ["text", "json", "markdown", "svg"])
def test_the_command_explains_a_script(
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch._dynamo.reset()
    script, out = tmp_path / "script.py", tmp_path / "report"
    script.write_text(SCRIPT)
    command = ["explain", "--format", form, "--out", str(out), str(script), "--out", "x"]
    assert not main(command)
    assert "['--out', 'x']\ntensor([0.5403, 0.5403])" in capsys.readouterr().out
    report = out.read_text()
    assert "aten.sin.default" in report or form == "svg"
    assert "1 graph" in report or form == "json"
    assert main(["explain", str(tmp_path / "none.py")]) == 2
