"""The checks of a release, on archives that are wrong."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.archives import sdist_problems, wheel_problems
from tests.release import Failed, Report, check_changelog, version

ROOT = Path(__file__).resolve().parents[1]


def test_the_changelog_has_this_version() -> None:
    check_changelog(version(), (ROOT / "CHANGELOG.md").read_text(), draft=True)


def test_a_version_needs_a_section_with_a_date() -> None:
    check_changelog("1.2.0", "# Changelog\n\n## [1.2.0] - 2026-12-01\n", draft=False)
    with pytest.raises(Failed, match="has no section"):
        check_changelog("1.2.0", "## [1.20] - 2026-12-01\n", draft=True)
    check_changelog("1.2.0", "## [1.2.0] - Unreleased\n", draft=True)
    with pytest.raises(Failed, match="no date"):
        check_changelog("1.2.0", "## [1.2.0] - Unreleased\n", draft=False)


def test_a_wheel_with_what_does_not_belong_there(tmp_path: Path) -> None:
    wheel = tmp_path / "torch_max_backend-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (
            "torch_max_backend/__init__.py",
            "benchmarks/matrix/one.py",
            "tests/conftest.py",
            "torch_max_backend/mojo_kernels/a.mojoc",
        ):
            archive.writestr(name, "")
        archive.writestr("torch_max_backend-1.0.dist-info/METADATA", "Name: another\n\n")
    found = "\n".join(wheel_problems(wheel, "1.0"))
    for problem in (
        "files are missing",
        "should not hold benchmarks/matrix/one.py",
        "should not hold tests/conftest.py",
        "should not hold torch_max_backend/mojo_kernels/a.mojoc",
        "top level: benchmarks, tests",
        "the licence is missing",
        "entry point",
        "Name is 'another'",
        "does not require torch",
    ):
        assert problem in found


def test_a_source_archive_with_what_does_not_belong_there(tmp_path: Path) -> None:
    sdist = tmp_path / "torch_max_backend-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("PKG-INFO", "benchmarks/README.md", "LICENSE"):
            archive.addfile(tarfile.TarInfo(f"torch_max_backend-1.0/{name}"), io.BytesIO())
        link = tarfile.TarInfo("torch_max_backend-1.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    found = "\n".join(sdist_problems(sdist, "1.0"))
    for problem in ("links and the like", "files are missing", "not for users: benchmarks"):
        assert problem in found


def test_the_report_names_what_failed() -> None:
    def fails() -> None:
        raise Failed("a | b\nc")

    report = Report()
    assert report.run("right", lambda: None)
    assert not report.failed
    assert not report.run("wrong", fails)
    assert report.failed
    assert "| right | passed | 0 |\n| wrong | a / b; c | 0 |\n" in report.table()
