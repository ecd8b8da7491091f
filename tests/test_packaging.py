"""The wheel: what is in it, and that it works where only it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.archives import wheel_problems
from tests.release import version
from tests.support.groups import compile_group

ROOT = Path(__file__).resolve().parents[1]

pytestmark = compile_group("packaging", 2)

_RUN = """
import runpy, sys
from pathlib import Path
import torch_max_backend
from torch_max_backend.registry.kernel_sources import kernel_sources
package = Path(torch_max_backend.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert kernel_sources() == package / "mojo_kernels", kernel_sources()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def _uv(*arguments: str | Path) -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    done = subprocess.run([uv, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without network."""
    folder = tmp_path_factory.mktemp("wheel")
    _uv(
        "build", "--wheel", "--offline", "--no-build-isolation",
        "--python", sys.executable, "--out-dir", folder,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_everything(wheel: Path) -> None:
    assert list(wheel_problems(wheel, version())) == []


def test_installed_wheel_runs_the_quick_start(wheel: Path, tmp_path: Path) -> None:
    _uv("venv", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    _uv("pip", "install", "--offline", "--no-deps", "--python", python, wheel)
    # The dependencies are those of this environment; its own .pth file, which leads to the
    # checkout, is not followed from here.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [python, "-I", "-c", _RUN, ROOT / "examples" / "quickstart.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each call, max" in done.stdout
