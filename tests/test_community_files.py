"""The forms of new issues, and what the pages for users and contributors promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.torch_versions import HIGHEST, LOWEST

ROOT = Path(__file__).resolve().parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
KINDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


@pytest.mark.parametrize("form", [f for f in FORMS if f.stem != "config"], ids=lambda f: f.stem)
def test_a_form_is_one(form: Path) -> None:
    found: dict[str, Any] = yaml.safe_load(form.read_text())
    assert found.keys() == {"name", "description", "labels", "body"}
    fields = [part for part in found["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in found["body"]} <= KINDS
    assert len({part["id"] for part in fields}) == len(fields)
    assert all(part["attributes"]["label"] for part in fields)
    doctor = next(part for part in fields if part["id"] == "doctor")
    assert doctor["validations"]["required"]
    assert "`python -m torch_max_backend doctor`" in doctor["attributes"]["label"]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.stem)
def test_what_a_form_names_exists(form: Path) -> None:
    import torch_max_backend.debug
    from torch_max_backend.__main__ import parser

    text = form.read_text()
    for name in re.findall(r"debug\.(\w+)", text):
        assert name in torch_max_backend.debug.__all__, name
    for path in re.findall(r"blob/main/([\w./-]+)", text):
        assert (ROOT / path).is_file(), path
    commands = parser().format_help()
    for command in re.findall(r"python -m torch_max_backend (\w+)", text):
        assert re.search(rf"^ +{command}\b", commands, re.M), command


def test_supported_versions_are_the_same_everywhere() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    major, minor = map(int, HIGHEST.split("."))
    assert f"torch>={LOWEST},<{major}.{minor + 1}" in project["dependencies"]
    (low,) = (d for d in project["dependencies"] if d.startswith("max>="))
    pinned = low.removeprefix("max>=").split(",")[0]
    python = project["requires-python"].removeprefix(">=")
    rows = (ROOT / "docs" / "stability.md").read_text()
    assert f"| Python | {python} or later |" in rows
    assert f"| PyTorch | {LOWEST} to {HIGHEST} |" in rows
    assert f"| MAX | {pinned} |" in rows
    for page in ("README.md", "docs/install.md"):
        said = f"Python {python} or later, PyTorch {LOWEST} to {HIGHEST}, MAX {pinned}"
        assert said in (ROOT / page).read_text(), page
