"""``python -m torch_max_backend``, as a user types it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreters import run_python
from tests.support.step_libraries import lent
from torch_max_backend.__main__ import main
from torch_max_backend.cache import store
from torch_max_backend.process import private_folders

HELP = """
import sys
from torch_max_backend.__main__ import main
for command in (["--help"], ["cache", "--help"], ["cache", "warm", "--help"], ["cache", "mend"]):
    try:
        main(command)
    except SystemExit as e:
        print("ended with", e.code)
loaded = [m for m in sys.modules if m == "max" or m.startswith("max.")]
assert not loaded, loaded
"""


def test_help_names_every_command_and_loads_no_max() -> None:
    done = run_python("-c", HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended with 0") == 3
    assert done.stdout.count("ended with 2") == 1
    assert "invalid choice: 'mend'" in done.stderr
    for word in ("python -m torch_max_backend", "cache", "warm", "export", "import", "SCRIPT"):
        assert word in done.stdout


@pytest.fixture
def run(
    private_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., tuple[Any, str, str]]:
    """Runs ``cache warm`` with a script of this text; returns status, stdout and stderr."""
    monkeypatch.setattr(private_folders, "known", private_folders.Known())
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def warm(text: str, *arguments: str) -> tuple[Any, str, str]:
        script = tmp_path / "scripts" / "script.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        status = main(["cache", "warm", str(script), *arguments])
        return status, *capfd.readouterr()

    return warm


SEEN = """
import sys, helper
print(__name__, __file__ == sys.argv[0], sys.argv[1:], sys.path[0] == helper.FOLDER)
print(sys.modules["__main__"].__dict__ is globals())
"""


@pytest.mark.parametrize(
    "arguments",
    [[], ["-x", "--help", "a b", "--", "c"], ["--"], ["--", "-x"], ["--all"]],
    ids=" ".join,
)
def test_a_script_runs_as_python_runs_it(
    arguments: list[str], run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    helper = tmp_path / "scripts" / "helper.py"
    helper.write_text("import os\nFOLDER = os.path.dirname(os.path.abspath(__file__))\n")
    try:
        status, out, _ = run(SEEN, *arguments)
    finally:
        sys.modules.pop("helper", None)
    assert status == 0
    assert out.splitlines() == [f"__main__ True {arguments} True", "True"]


STORES = """
from torch_max_backend.cache import store
store.put("there", b"artifact", {})
store.put("here", b"artifact", {})
"""


def test_one_line_says_what_was_compiled(run: Callable[..., Any], private_cache: Path) -> None:
    store.put("old", b"artifact", {})
    status, out, error = run(STORES + 'assert store.get("old")\n')
    assert (status, out) == (0, "")
    (line,) = error.splitlines()
    assert line.startswith("torch_max_backend: 2 graphs compiled, 1 there already, ")
    assert line.endswith(f" s, in {private_cache / 'artifacts'}")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('a message')", "a message"),
    ],
)
def test_the_status_is_that_of_the_script(text: str, status: Any, run: Callable[..., Any]) -> None:
    found, _, error = run(STORES + text)
    assert found == status
    assert "2 graphs compiled" in error


def test_an_exception_is_shown_as_python_shows_it(run: Callable[..., Any]) -> None:
    status, _, error = run(STORES + "def f():\n    raise KeyError('mine')\nf()\n")
    assert status == 1
    lines = error.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'script.py", line 7, in <module>' in lines[1]
    assert lines[-2] == "KeyError: 'mine'"
    assert "2 graphs compiled" in lines[-1]
    assert "runpy" not in error


def test_our_errors_in_a_script_keep_their_traceback(run: Callable[..., Any]) -> None:
    status, _, error = run("from torch_max_backend import CacheError\nraise CacheError('mine')")
    assert status == 1
    assert 'script.py", line 2' in error
    assert "CacheError: mine" in error


def test_a_syntax_error_is_shown(run: Callable[..., Any]) -> None:
    status, _, error = run("x = = 1")
    assert status == 1
    assert "SyntaxError" in error
    assert "Traceback" not in error


def test_an_interrupt_ends_at_once(run: Callable[..., Any]) -> None:
    before = list(store.listeners)
    with pytest.raises(KeyboardInterrupt):
        run("raise KeyboardInterrupt")
    assert store.listeners == before


def test_threads_of_the_script_are_waited_for(run: Callable[..., Any]) -> None:
    thread = "import threading\nthreading.Timer(0.3, store.put, ('x', b'x', {})).start()\n"
    assert "3 graphs compiled" in run(STORES + thread)[2]


def test_a_graph_that_is_not_stored_is_a_failure(run: Callable[..., Any]) -> None:
    text = STORES + "from torch_max_backend.driver import background\n"
    status, _, error = run(text + "background.failures.append('no such kernel')")
    assert status == 1
    assert "2 graphs compiled, 0 there already, 1 failed" in error
    assert run(text + "background.failures.append('x'); raise SystemExit(9)")[0] == 9


def test_no_home_directory(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TORCH_MAX_BACKEND_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fail)
    status, out, error = run("print('it ran')")
    assert (status, out) == (1, "")
    assert "determine home directory" in error
    assert "Set TORCH_MAX_BACKEND_CACHE_DIR" in error


def test_a_missing_script(private_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "warm", str(private_cache / "missing.py")]) == 2
    assert "missing.py" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["off", "open to others"])
@pytest.mark.parametrize("command", ["warm", "export", "import"])
def test_a_cache_that_cannot_be_used(
    what: str,
    command: str,
    run: Callable[..., Any],
    private_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if what == "off":
        monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    else:
        (private_cache / "artifacts").mkdir(mode=0o755)
    if command == "warm":
        status, out, error = run("print('it ran')")
    else:
        status = main(["cache", command, str(tmp_path / "a.tar")])
        out, error = capfd.readouterr()
    assert status == 1
    assert out == ""
    assert "error: The cache " in error
    assert ("TORCH_MAX_BACKEND_CACHE says so" if what == "off" else "chmod 700") in error


def test_a_damaged_archive_is_told(
    run: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tar").write_bytes(b"not an archive")
    assert main(["cache", "import", str(tmp_path / "a.tar")]) == 1
    assert "error: This is no archive of the cache" in capfd.readouterr().err


# The graph is one that ``test_compiler.py`` compiles: MAX compiles it once.
SCRIPT = """
import sys, torch
from tests.support.module_cache import kept_compiles
kept_compiles().__enter__()
x, y = torch.arange(12.0).reshape(3, 4), torch.ones(4)
options = {"background": True}
compiled = torch.compile(lambda x, y: (x + y, x.t()), backend="max", dynamic=True, options=options)
print(compiled(x, y)[0][0].tolist(), sys.argv[1:])
sys.exit(3)
"""


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize(("engine", "stage"), [("steps", "plan"), ("max", "compile")])
def test_warm_export_import_and_a_start_without_compiling(
    engine: str,
    stage: str,
    private_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As for an image: no home directory, and every cache in a place of its own."""
    script, archive = tmp_path / "script.py", tmp_path / "cache.tar"
    script.write_text(SCRIPT)

    def warm(machine: str) -> str:
        caches = {
            "TORCH_MAX_BACKEND_CACHE_DIR": str(tmp_path / machine / "ours"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / machine / "torch"),
        }
        home = {"HOME": "/dev/null", "TORCH_MAX_BACKEND_PROFILE": "1"}
        home["TORCH_MAX_BACKEND_ENGINE"] = engine
        with lent(tmp_path / machine / "ours"):
            done = run_python(
                *("-m", "torch_max_backend", "cache", "warm", script, "-x"),
                environment={**os.environ, **home, **caches},
            )
        assert done.returncode == 3, done.stderr
        assert done.stdout == "[1.0, 2.0, 3.0, 4.0] ['-x']\n"
        return done.stderr

    def here(machine: str, *command: str) -> str:
        monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(tmp_path / machine / "ours"))
        assert main(["cache", *command, str(archive)]) == 0
        return capfd.readouterr().out

    error = warm("one")
    assert "torch_max_backend: 1 graph compiled, 0 there already, " in error
    assert f", {stage} " in error
    assert here("one", "export").startswith("1 artifact exported to ")
    assert here("other", "import").startswith("1 artifact imported into ")
    error = warm("other")
    assert "torch_max_backend: 0 graphs compiled, 1 there already, " in error
    assert f", {stage} " not in error
