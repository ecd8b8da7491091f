"""The documentation as a site: it builds without a warning, and needs no network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the working tree; a warning, such as a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.xdist_group("site")
def test_every_page_is_in_the_navigation(site: Path) -> None:
    index = (site / "index.html").read_text()
    pages = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in _documents()]
    pages += [Path(p).with_suffix(".html") for p in _hooks().PAGES.values()]
    for page in pages:
        built = page.with_name("index.html") if page.stem == "README" else page
        assert (site / built).is_file(), page
        assert built.name == "index.html" or f'href="{built}"' in index, page


@pytest.mark.xdist_group("site")
def test_nothing_is_fetched_when_it_is_read(site: Path) -> None:
    tags = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?((?:https?:)?//[^\s\">]*)"
    )
    for page in site.rglob("*.html"):
        assert tags.findall(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.xdist_group("site")
def test_lists_tables_and_fences_are_seen_as_such(site: Path) -> None:
    """What GitHub takes and this Markdown does not, stays in a paragraph."""
    for page in site.rglob("*.html"):
        for text in re.findall(r"<p>(.*?)</p>", page.read_text(), re.S):
            assert not re.search(r"^ *(?:[-*] |\d+\. |\| |```)", text, re.M), (page, text)


def test_links_of_the_repository_become_links_of_the_site() -> None:
    hooks = _hooks()

    def moved(text: str, place: str) -> str:
        return hooks.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=place)))

    given = "[a](../benchmarks/README.md#memory) [b](ops.md) [c](#here) [d](https://e.org/x.md)"
    assert moved(given, "faq.md") == given.replace("../benchmarks", "benchmarks")
    assert moved("[a](../../benchmarks/README.md)", "design/a.md") == "[a](../benchmarks/README.md)"
    assert moved("[a](docs/ops.md) [b](#x)", "contributing.md") == "[a](ops.md) [b](#x)"
    assert moved("[a](../docs/ops.md)", "benchmarks/README.md") == "[a](../ops.md)"
    assert moved("[a](../tests/pages.py)", "faq.md") == "[a](../tests/pages.py)"


def _documents() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def _hooks() -> ModuleType:
    found = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
