"""What ``mkdocs build`` does beside its settings: files of the repository outside ``docs`` that
are pages of the site too, and links to them, which are written as they are right in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]

# A file of the repository, and its place in the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks/README.md",
    "benchmarks/steps.md": "benchmarks/steps.md",
    "benchmarks/training.md": "benchmarks/training.md",
    "benchmarks/operators.md": "benchmarks/operators.md",
    "benchmarks/language-models.md": "benchmarks/language-models.md",
    "benchmarks/frameworks.md": "benchmarks/frameworks.md",
    "benchmarks/distributed.md": "benchmarks/distributed.md",
    "benchmarks/serving.md": "benchmarks/serving.md",
    "benchmarks/sweep.md": "benchmarks/sweep.md",
    "benchmarks/sweep-training.md": "benchmarks/sweep-training.md",
    "benchmarks/sweep-sizes.md": "benchmarks/sweep-sizes.md",
    "benchmarks/sweep-bfloat16.md": "benchmarks/sweep-bfloat16.md",
    ".claude/skills/mojo-gpu-kernels/USAGE.md": "mojo-kernels.md",
    ".claude/skills/aten-ops/README.md": "aten-operators.md",
}
_SOURCES = {place: source for source, place in PAGES.items()}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and the pictures in them."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    for picture in sorted((ROOT / "benchmarks").rglob("*.png")):
        place = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, place, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links between files of the repository links between pages of the site."""
    place = page.file.src_uri
    source = _SOURCES.get(place, f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        if ":" in target:
            return link[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if found not in PAGES and not found.startswith("docs/"):
            return link[0]  # not of the site: mkdocs says so
        to = PAGES.get(found, found.removeprefix("docs/"))
        return f"]({posixpath.relpath(to, posixpath.dirname(place) or '.')}{anchor})"

    return re.sub(r"\]\(([^)\s#]+)(#[^)\s]+)?\)", moved, markdown)
