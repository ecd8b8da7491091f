"""Three packages for each engine; those of MAX's are compiled as one module."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from tests.ahead_of_time.models import CASES
from tests.support.module_cache import kept_compiles
from tests.support.step_libraries import lent


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package of each case, as plans; ``pairs`` was an ``ExportedProgram``."""
    return _exported(tmp_path_factory.mktemp("packages"), "steps")


@pytest.fixture(scope="session")
def packages_of_max(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, compiled by MAX."""
    return _exported(tmp_path_factory.mktemp("packages_of_max"), "max")


def _exported(root: Path, engine: str) -> Path:
    from torch_max_backend import export
    from torch_max_backend.ahead_of_time.exporting import Prepared

    kept = kept_compiles() if engine == "max" else nullcontext()
    with pytest.MonkeyPatch.context() as patch, lent(root / "cache"), kept:
        patch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(root / "cache"))
        patch.setenv("TORCH_MAX_BACKEND_ENGINE", engine)
        programs = {
            name: torch.export.export(c.module(), *c.call(c.size), dynamic_shapes=c.dynamic)
            for name, c in CASES.items()
        }
        first, *others = (Prepared.of(program).job for program in programs.values())
        first.functions(*others)
        for name, case in CASES.items():
            if name == "pairs":
                export(programs[name], path=root / name)
            else:
                args, kwargs = case.call(case.size)
                dynamic = case.dynamic
                export(case.module(), args, kwargs, dynamic_shapes=dynamic, path=root / name)
    shutil.rmtree(root / "cache")
    return root


@pytest.fixture
def copied(packages: Path, tmp_path: Path) -> Path:
    """A package to damage: a copy of ``tied``."""
    return Path(shutil.copytree(packages / "tied", tmp_path / "tied"))
