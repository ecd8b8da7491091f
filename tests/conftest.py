"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo.guards
from _pytest.unraisableexception import gc_collect_iterations_key

from tests.support.step_libraries import lent

# What MAX does not take is an error: a test whose graph runs in eager PyTorch would prove nothing.
# For processes that tests start, too.
os.environ["TORCH_MAX_BACKEND_FALLBACK"] = "error"
# A test that calls a graph often would have its programs compiled beside the other tests.
os.environ["TORCH_MAX_BACKEND_FUSE"] = "0"

_BUILD = pytest.StashKey[subprocess.Popen[bytes] | None]()

# MAX is imported inside tests and fixtures only: every xdist worker collects every module, and
# MAX costs each process 0.6 GB.


@pytest.fixture
def tensor_shapes() -> list[tuple[int, ...]]:
    """A spread of shapes: 0-d, zero-size, size 1, odd, several ranks."""
    return [(), (0,), (1,), (7,), (2, 3), (3, 0, 2), (1, 5, 1), (2, 3, 4), (2, 1, 3, 5)]


@pytest.fixture
def devices() -> list[str]:
    """Names of the devices that both torch and MAX drive here."""
    found = ["cpu"]
    if torch.cuda.is_available():
        from max import driver

        if driver.accelerator_count() > 0:
            found.append("cuda")
    return found


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache directory of the test's own, for this package and for torch; returns ours."""
    ours = tmp_path / "torch_max_backend"
    ours.mkdir(mode=0o700)
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(ours))
    monkeypatch.delenv("TORCH_MAX_BACKEND_CACHE", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    torch._dynamo.reset()
    yield ours
    torch._dynamo.reset()


@pytest.fixture
def lent_libraries(private_cache: Path) -> Iterator[Path]:
    """A cache directory of the test's own, with the libraries of kernels that exist already: what
    a test needs that runs graphs as steps, or it builds them once more."""
    with lent(private_cache):
        yield private_cache


@pytest.fixture
def max_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX compiles graphs on CPU too, unless an option says otherwise."""
    monkeypatch.setenv("TORCH_MAX_BACKEND_ENGINE", "max")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    # Each worker imports torch and collects every module: 18 CPU s, for nothing where it then waits
    # for a core.
    if getattr(config.option, "maxprocesses", 0) is None:
        config.option.maxprocesses = 2 * (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """For a whole run, which needs them all, build kernels in one go, while workers collect."""
    config = session.config
    chosen = config.option.keyword or config.option.markexpr or config.option.collectonly
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen
    if whole and not hasattr(config, "workerinput"):
        from tests.support.kernels import start_build

        config.stash[_BUILD] = start_build()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    from tests.support.kernels import wait_for_build

    wait_for_build()


def pytest_sessionfinish(session: pytest.Session) -> None:
    build = session.config.stash.get(_BUILD, None)
    if build is not None:
        build.wait()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the processes of tests what is not theirs: it is a fifth of their time."""
    # Nobody need look for garbage among what collecting has made, nor often beside graphs.
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 20, 20)
    # pytest looks for it five times at its end, a second each.
    session.config.stash[gc_collect_iterations_key] = 1


def pytest_unconfigure() -> None:
    # MAX's modules tell at exit of what was not collected.
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-samples"):
        return
    left_out = [i for i in items if i.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [i for i in items if not i.get_closest_marker("thorough")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-samples",
        action="store_true",
        help="conformance tests: every dtype and sample of the tables, not a choice of them",
    )
