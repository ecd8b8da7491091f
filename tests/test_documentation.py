"""What the documents say exists, works, and compiles."""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import torch_max_backend.debug
from tests.support.module_cache import kept_text
from torch_max_backend import environment, errors, options
from torch_max_backend.__main__ import parser

ROOT = Path(__file__).resolve().parents[1]
SKILLS = ROOT / ".claude" / "skills"
USAGE = SKILLS / "mojo-gpu-kernels" / "USAGE.md"
DOCS = ROOT / "docs"
OPTIONS = DOCS / "options.md"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *(p for folder in (SKILLS, DOCS, ROOT / "benchmarks") for p in sorted(folder.rglob("*.md"))),
]

documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(d.relative_to(ROOT)) for d in DOCUMENTS]
)


def _blocks(document: Path, language: str) -> list[str]:
    fences = re.findall(rf"^ *```{language}\n(.*?)^ *```$", document.read_text(), re.M | re.S)
    return [textwrap.dedent(block) for block in fences]


def _prose(document: Path) -> str:
    """The text without code, which may look like a link."""
    without_blocks = re.sub(r"^ *```.*?^ *```$", "", document.read_text(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", without_blocks)


def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _prose(document), re.M)
    return {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}


@documents
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(document)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = document.parent / path if path else document
        assert found.exists(), target
        assert not anchor or anchor in _anchors(found), target


@documents
def test_named_files_exist(document: Path) -> None:
    folders = r"tests|examples|benchmarks|torch_max_backend|mojo_kernels|\.ci|\.claude"
    names = re.findall(rf"(?<![\w/.~-])(?:{folders})/[\w./-]*\w", document.read_text())
    missing = [n for n in names if not (ROOT / n).exists()]
    assert not missing


@documents
def test_named_modules_exist(document: Path) -> None:
    for name in re.findall(
        r"python -m (tests[\w.]*|torch_max_backend[\w.]*)", document.read_text()
    ):
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), name


@documents
def test_python_blocks_parse(document: Path) -> None:
    for block in _blocks(document, "python"):
        ast.parse(block)


@pytest.mark.parametrize("folder", [p.name for p in sorted(SKILLS.iterdir())])
def test_skill_has_frontmatter(folder: str) -> None:
    _, head, body = (SKILLS / folder / "SKILL.md").read_text().split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields.keys() == {"name", "description"}
    assert fields["name"] == folder
    assert 40 < len(fields["description"]) <= 1024
    assert body.strip()


def test_options_page_lists_every_environment_variable() -> None:
    text = OPTIONS.read_text()
    rows = re.findall(r"^\| `(TORCH_MAX_BACKEND_\w+)` \| ?(.*?) \| (.*) \|$", text, re.M)
    assert rows == [(s.variable, s.usual, s.meaning) for s in environment.SETTINGS.values()]
    assert {row[0] for row in rows} == environment.names()
    for words in (environment.TRUE, environment.FALSE[:-1]):
        assert ", ".join(f"`{w}`" for w in words[:-1]) in text


def test_options_page_lists_every_option() -> None:
    section = OPTIONS.read_text().split("## Options of torch.compile")[1].split("\n## ")[0]
    mentioned = set(re.findall(r"^\| `([a-z_]+)` \|", section, re.M))
    assert mentioned == set(options.Options.__dataclass_fields__)


def test_errors_page_lists_every_exception() -> None:
    text = (DOCS / "errors.md").read_text()
    mentioned = set(re.findall(r"^\| `(\w+Error)` \|", text, re.M))
    known = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.MaxBackendError)
    }
    assert known - mentioned == {"MaxBackendError", "UnsupportedError"}
    assert mentioned < known
    assert "`MaxBackendError`" in text
    assert "`UnsupportedError`" in text


def _commands(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each command with its options."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in inner:
        for name, found in action.choices.items():
            yield from _commands(found, f"{words} {name}".strip())
    if not inner:
        yield words, [o for a in parser._actions for o in a.option_strings]


def test_command_line_page_lists_every_command_and_option() -> None:
    text = (DOCS / "command-line.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z ]*[a-z])(?= |`)(.*?)` \|", text, re.M))
    known = dict(_commands(parser()))
    assert rows.keys() == known.keys()
    for command, accepted in known.items():
        mentioned = set(re.findall(r"--[\w-]+", rows[command]))
        assert mentioned == set(accepted) - {"-h", "--help"}, command


def test_every_public_name_is_in_the_pages() -> None:
    text = "\n".join(p.read_text() for p in DOCS.glob("*.md"))
    for module, left_out in (
        (torch_max_backend, {"Explanation"}),
        (torch_max_backend.debug, {"Comparison", "GraphComparison", "NodeError"}),
    ):
        for name in set(module.__all__) - left_out:
            assert re.search(rf"\b{name}\b", text), name


def test_options_page_names_the_default_bank() -> None:
    from torch_max_backend.gemm_providers.choice import names

    (row,) = re.findall(r"^\| `bank` .*$", OPTIONS.read_text(), re.M)
    assert all(f'`"{name}"`' in row for name in names())


def test_catalogue_names_max_operations() -> None:
    from max.graph import ops

    section = USAGE.read_text().split("## Catalogue of MAX operations")[1]
    rows = re.findall(r"^\| [a-z][^|]* \| `([^`]+)` \|$", section, re.M)
    names = [name for row in rows for name in row.split()]
    assert len(names) > 100
    assert [n for n in names if not hasattr(ops, n)] == []


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Mojo files of USAGE.md."""
    folder = tmp_path_factory.mktemp("mojo")
    for block in _blocks(USAGE, "mojo"):
        name = block.splitlines()[0].removeprefix("# ")
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(block + "\n")
    return folder


def _mojo(folder: Path, *arguments: str) -> None:
    mojo = Path(sys.executable).with_name("mojo")
    done = subprocess.run([mojo, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning:" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("target", "suffix", "shuffle", "wait"),
    [("sm_90a", "ptx", "shfl.sync", "bar.sync"), ("gfx942", "amdgcn", "dpp", "s_barrier")],
)
def test_mojo_templates_compile_for_gpus(
    templates: Path, target: str, suffix: str, shuffle: str, wait: str
) -> None:
    command = [
        "build", f"--target-accelerator={target}", "--emit", "asm", "-I", ".", "check.mojo", "-o",
        f"{target}.s",
    ]  # fmt: skip

    def compiled() -> str:
        _mojo(templates, *command)
        return json.dumps({p.stem: p.read_text() for p in templates.glob(f"*.{suffix}")})

    sources = "\n".join(_blocks(USAGE, "mojo"))
    kernels = json.loads(kept_text(f"{command} {sources}", compiled))
    assert len(kernels) == 10  # five kernels, two dtypes
    assert all(shuffle in k for name, k in kernels.items() if "sum" in name)
    assert all(wait in k for name, k in kernels.items() if "warp" not in name)


def test_mojo_templates_make_a_library(templates: Path) -> None:
    _mojo(templates, "precompile", "templates", "-o", "templates.mojoc")
    assert (templates / "templates.mojoc").stat().st_size > 0
