"""The examples run as a user would run them, and say what they are to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.interpreters import run_python

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Runs the cells of a notebook as IPython does: each has a source that can be looked at.
NOTEBOOK = """
import json, linecache, sys
names = {"__name__": "__main__"}
for i, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        text, file = "".join(cell["source"]), f"<cell {i}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), names)
"""


def run(*command: str | Path) -> str:
    done = run_python(*command)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_notebook_of_interventions(lent_libraries: Path) -> None:
    pytest.importorskip("nnsight")
    out = run("-c", NOTEBOOK, EXAMPLES / "interventions.ipynb")
    assert out.count("layer ") == 6
    assert "torch.Size([1, 48, 256])" in out
    assert "compiled blocks" in out.splitlines()[-1]


def test_the_table_of_evidence(lent_libraries: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    arguments = ("--layers", "1", "--width", "32", "--lengths", "8", "--seconds", "0.01")
    run(EXAMPLES / "custom_kernel_evidence.py", *arguments, "--markdown", table)
    environment, _, titles, _, *rows = table.read_text().splitlines()
    assert environment.startswith("ESM-2, 1 layers, 32 wide, float32")
    assert len(rows) == 4
    for row in rows:
        cells = dict(zip(titles.split(" | "), row.split(" | "), strict=True))
        assert float(cells["largest difference"]) < 1e-5
        assert float(cells["baseline ms"]) > 0


def test_a_server_loses_no_request(lent_libraries: Path) -> None:
    pytest.importorskip("fastapi")
    from benchmarks.serving import serve

    found = serve("max", requests=40, at_once=8, layers=1)
    assert found["lost"] == 0
    assert found["answered_at_end"] == [8, 8]


def test_notebooks_are_kept_without_their_results() -> None:
    for notebook in EXAMPLES.glob("*.ipynb"):
        cells = [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]
        assert cells
        assert not any(c["outputs"] or c["execution_count"] for c in cells)
