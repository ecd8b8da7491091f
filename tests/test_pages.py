"""The Python blocks of the README and of each page of the documentation run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import Pages, blocks, script
from tests.support.groups import compile_group
from tests.support.step_libraries import lent
from torch_max_backend import environment

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {str(d.relative_to(ROOT)): d.read_text() for d in DOCUMENTS}
SCRIPTS = {name: text for name, text in TEXTS.items() if blocks(text)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    kernels, own = environment.cache_dir() / "kernels", folder / "cache" / "kernels"
    own.mkdir(mode=0o700, parents=True)
    for library in kernels.glob("*.mojoc"):
        shutil.copy(library, own)  # or they would be precompiled once more
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(folder / "cache"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
        patch.delenv("TORCH_MAX_BACKEND_CACHE", raising=False)
        with lent(folder / "cache"):
            yield Pages(SCRIPTS, folder)
    shutil.rmtree(folder / "cache")  # a copy of the module for each graph


@compile_group("pages", 4.0)
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_blocks_of_a_page_run(name: str, pages: Pages) -> None:
    pages.run(name)


@compile_group("pages", 4.0)
def test_their_graphs_were_compiled_together(pages: Pages) -> None:
    assert pages.compiled >= 10


def test_lines_of_a_script_are_those_of_the_page() -> None:
    text = (
        "a\n\n```python\nx = 1\n```\n\n1. b\n\n    ```python\n    if x:\n        y = 2\n    ```\n"
    )
    assert script(text).splitlines() == [*[""] * 3, "x = 1", *[""] * 5, "if x:", "    y = 2"]
    assert script("no block\n") == ""


def test_blocks_that_do_not_run_are_few() -> None:
    """They have the language of nothing that this package is about."""
    for name, text in TEXTS.items():
        assert "```py\n" not in text, name
        assert "```Python" not in text, name
        assert text.count("```python") == len(blocks(text)), name
