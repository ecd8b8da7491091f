"""``python -m torch_max_backend doctor``: whether everything works here, and what to do if not."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from torch_max_backend import environment
from torch_max_backend.errors import SettingError
from torch_max_backend.log import several

OK, NOTE, WRONG = "ok", "note", "wrong"
_PREFIX = "TORCH_MAX_BACKEND_"
# Bytes: below it, MAX's compiler or the cache may fail.
_LEAST_DISK, _LEAST_MEMORY = 2 * 10**9, 3 * 10**9


@dataclass(frozen=True)
class Finding:
    """What was looked at.

    Attributes:
        what: In a word or two.
        state: "ok", "note" (it works, but you may want to know) or "wrong".
        found: What was found.
        advice: What to do about it.
    """

    what: str
    state: str
    found: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.state:>5}  {self.what}: {self.found}"
        return f"{line}\n       {self.advice}" if self.advice else line


def examine(*, compile: bool = True) -> Iterator[Finding]:
    """Look at versions, settings, devices, cache and memory, then compile and run on each device.

    Args:
        compile: Whether to compile; it takes about 15 s.
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        _versions, _settings, _machine, _bank, _cache, _devices, partial(_libraries, compile),
    ]  # fmt: skip
    if compile:
        checks.append(_compiles)
    for check in checks:
        try:
            yield from check()
        except SettingError as e:
            yield Finding("not looked at", WRONG, str(e).splitlines()[0], "Correct it first.")
        except Exception as e:
            what = getattr(check, "__name__", "_libraries").strip("_")
            yield Finding(what, WRONG, f"{type(e).__name__}: {e}", "Report this, with the text.")


def _versions() -> Iterator[Finding]:
    for package in ("torch_max_backend", "torch", "max", "mojo-compiler"):
        try:
            yield Finding(package, OK, version(package))
        except PackageNotFoundError:
            yield Finding(package, WRONG, "not installed", "Install torch-max-backend again.")
    yield Finding("Python", OK, f"{platform.python_version()} on {platform.platform()}")
    from torch_max_backend.compat.names import missing

    for problem in missing():
        yield Finding("versions", WRONG, problem, "Install versions that work.")
    from torch_max_backend.backend import max_backend
    from torch_max_backend.compat.dynamo import lookup_backend

    if lookup_backend("max") is not max_backend:
        advice = "Another package registers it; give torch.compile backend=max_backend."
        yield Finding('backend "max"', WRONG, "it is not this package's", advice)


def _settings() -> Iterator[Finding]:
    known = {s.variable: s for s in environment.SETTINGS.values()}
    for name in sorted(n for n in os.environ if n.startswith(_PREFIX)):
        value = f"set to {os.environ[name]!r}"
        if name in known:
            try:
                known[name].read()
            except SettingError:
                yield Finding(name, WRONG, value, f"It may be {known[name].kind.allowed}.")
            else:
                yield Finding(name, NOTE, value)
        else:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
            yield Finding(name, WRONG, "no such setting", advice)


def _machine() -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", OK, f"{platform.machine()}, {count} usable cores")
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    state = OK if free >= _LEAST_MEMORY else NOTE
    advice = "" if state == OK else "Compiling takes 2 GB; large models more."
    yield Finding("free memory", state, f"{free / 1e9:.1f} GB", advice)


def _bank() -> Iterator[Finding]:
    from torch_max_backend.gemm_providers.choice import provider

    found = provider()
    assert found is not None
    yield Finding("matrix products on CPU", OK, f"{found.name} {found.version}".strip())


def _cache() -> Iterator[Finding]:
    from torch_max_backend.cache import maintenance
    from torch_max_backend.errors import CacheError

    if not environment.cache_enabled():
        yield Finding("cache", NOTE, f"off: {_PREFIX}CACHE says so", "Every process compiles.")
        return
    try:
        known = maintenance.entries(check=True)
    except CacheError as e:
        first, *rest = str(e).splitlines()
        yield Finding("cache", WRONG, first, " ".join(rest))
        return
    folder = environment.cache_dir()
    size = sum(e.size for e in known) / 1e6
    yield Finding("cache", OK, f"{several(len(known), 'artifact')}, {size:.1f} MB, in {folder}")
    bad = [e for e in known if e.problem]
    if bad:
        advice = "They count as missing. Remove them: python -m torch_max_backend cache verify"
        yield Finding("cache", NOTE, f"{len(bad)} bad artifacts ({bad[0].problem})", advice)
    free = shutil.disk_usage(folder).free
    if free < _LEAST_DISK:
        advice = f"Make room, or set {_PREFIX}CACHE_DIR to another disk."
        yield Finding("disk", WRONG, f"{free / 1e9:.1f} GB free", advice)


def _libraries(build: bool) -> Iterator[Finding]:
    from torch_max_backend.engines.steps.families import family_of
    from torch_max_backend.engines.steps.libraries import built
    from torch_max_backend.engines.steps.openmp import team_mode
    from torch_max_backend.engines.steps.runner import runner
    from torch_max_backend.engines.steps.standard import standard
    from torch_max_backend.errors import LibraryError

    what = "libraries of kernels on CPU"
    if team_mode() == "serial":
        yield Finding(what, NOTE, "one thread: torch has no OpenMP runtime that they can share")
    if build:
        try:
            runner()  # the smallest
        except LibraryError as e:
            first, *rest = str(e).splitlines()
            yield Finding(what, WRONG, first, "\n".join(rest) or "Report this, with the text.")
            return
    wanted = standard()
    missing = sorted({m for i in wanted if not built([i]) for m in family_of(i).modules})
    if missing:
        advice = "To build them now: python -m torch_max_backend cache warm --libraries"
        found = f"{', '.join(missing)} will be built when they are first needed"
        yield Finding(what, OK, found, advice)
    else:
        yield Finding(what, OK, "what most models need is built")


def _devices() -> Iterator[Finding]:
    import torch
    from max import driver

    seen = driver.accelerator_count()
    yield Finding("accelerators of MAX", OK, str(seen))
    theirs = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if theirs != seen:
        advice = "Install torch for your accelerator." if seen else "Check the driver's version."
        yield Finding("accelerators of torch", NOTE, str(theirs), advice)


def _compiles() -> Iterator[Finding]:
    import torch
    from max import driver

    from torch_max_backend.backend import max_backend

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = ["cpu", *(f"cuda:{k}" for k in range(min(count, driver.accelerator_count())))]
    for device in devices:
        torch.compiler.reset()
        x = torch.linspace(-2, 2, 60, device=device).reshape(5, 12)

        def function(x: torch.Tensor) -> torch.Tensor:
            return (x @ x.t()).softmax(-1).sin() + x.sum()

        options = {"cache": False, "fallback": "error"}
        compiled = torch.compile(function, backend=max_backend, options=options)
        begin = time.perf_counter()
        try:
            error = (compiled(x) - function(x)).abs().max().item()
        except SettingError:
            raise
        except Exception as e:
            yield Finding(f"a model on {device}", WRONG, str(e), "Report this, with the text.")
            continue
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        for _ in range(20):
            compiled(x)
        each = (time.perf_counter() - begin) / 20
        state = OK if error < 1e-4 else WRONG
        found = f"compiled in {first:.1f} s, runs in {each * 1e6:.0f} us, {error:.0e} from eager"
        yield Finding(f"a model on {device}", state, found)
    torch.compiler.reset()


def main(*, compile: bool = True) -> int:
    """Print the findings as they come; 1 if something is wrong."""
    wrong = 0
    for finding in examine(compile=compile):
        wrong += finding.state == WRONG
        sys.stdout.write(f"{finding}\n")
        sys.stdout.flush()
    things = f"{several(wrong, 'thing')} wrong" if wrong else "All is well"
    sys.stdout.write(f"{things}.\n")
    return int(wrong > 0)
