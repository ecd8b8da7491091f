"""Kernels for processors with vectors of 32 bytes, compiled on any."""

from __future__ import annotations

import platform
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support.module_cache import kept_text
from torch_max_backend.engines.steps.program_libraries import Library, libraries_by_operation
from torch_max_backend.engines.steps.shells import PACKAGE
from torch_max_backend.engines.steps.sources import write_own


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no AVX2")
def test_the_interpreter_of_programs_compiles_for_avx2(tmp_path: Path) -> None:
    modules = next(lib.modules for lib in libraries_by_operation().values() if lib.interprets)
    write_own(modules, tmp_path / PACKAGE)
    main, made = tmp_path / "main.mojo", tmp_path / "main.ll"
    main.write_text(Library("narrow", {}, modules, interprets=True).text().text)
    options = ["--emit", "llvm", "--target-cpu", "x86-64-v3", "-D", "TMB_STEPS=1"]

    def compiled() -> str:
        mojo = Path(sysconfig.get_path("scripts")) / "mojo"
        command = [mojo, "build", *options, "-I", tmp_path, main, "-o", made]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return "\n".join(re.findall(r"^define .*", made.read_text(), re.MULTILINE))

    sources = [path.read_text() for path in sorted(tmp_path.rglob("*.mojo"))]
    assert "@tmb_program(" in kept_text(f"{options} {sources}", compiled)
