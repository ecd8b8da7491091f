"""Words that the project's prose does without: what plain English says instead is beside each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "torch_max_backend",
    "mojo_kernels",
    "benchmarks",
    "docs",
    "examples",
    "tests",
    ".claude",
)
WORDS = {
    r"dear(er|est)?": "expensive",
    r"(be|was|is|are) had": "available, possible",
    r"(is|are|was|were) told (of|by)": "is logged, is called with, comes from",
    r"MAX (has|have) not": "MAX does not support, MAX lacks",
    r"(whence|whither|thereof|therein|hereby|lest|thrice|anent)": "say it another way",
    r"(only|the|and) 1 (are|were|have)": "the singular",
    r"utili[sz]e[sd]?": "use",
    r"in order to": "to",
}


def _texts() -> dict[str, str]:
    paths = [
        p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in (".py", ".md", ".mojo")
    ]
    paths += [*ROOT.glob("*.md")]
    return {str(p.relative_to(ROOT)): p.read_text() for p in paths if p != Path(__file__)}


@pytest.mark.parametrize("word", WORDS)
def test_the_prose_does_without(word: str) -> None:
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{name}: {match[0]}" for name, text in _texts().items() for match in pattern.finditer(text)
    ]
    assert not found, f"say instead: {WORDS[word]}"
