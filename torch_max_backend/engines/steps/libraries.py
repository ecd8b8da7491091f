"""Libraries of shells: built when a kernel is first needed, kept once a machine."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from torch_max_backend.cache import kernel_libraries
from torch_max_backend.cache.kernel_libraries import Manifest
from torch_max_backend.engines.steps import instructions
from torch_max_backend.engines.steps.building import build, runtime_libraries
from torch_max_backend.engines.steps.families import (
    Family,
    defines,
    family_of,
    key_of,
    text_key,
    write_sources,
)
from torch_max_backend.engines.steps.openmp import team_mode
from torch_max_backend.engines.steps.shells import Instance, shells_text
from torch_max_backend.engines.steps.signatures import kernels
from torch_max_backend.engines.steps.texts import Text
from torch_max_backend.errors import CacheError, CompilationError, LibraryError
from torch_max_backend.log import get_logger
from torch_max_backend.process import fork_safety
from torch_max_backend.process.compile_slots import compile_jobs, compile_slot, compile_threads
from torch_max_backend.process.progress import progress

log = get_logger("steps")

# Addresses by family, key and symbol. Nothing that was loaded is ever unloaded.
_loaded: dict[tuple[Family, str], dict[str, int]] = {}
_addresses: dict[Instance, int] = {}
# What could not be built in this process; it is not tried again.
_failed: dict[tuple[Family, str, frozenset[str]], LibraryError] = {}
_loading = fork_safety.rlock()
# What a function of a text takes to build, if a shell takes 1.
_FUNCTION = 0.1
# How many shells are worth a library of their own.
_WORTH = 3


@dataclass
class _Need:
    """What of a family is missing.

    Attributes:
        family: Whose libraries.
        key: What they are made of.
        symbols: What has to be exported, each with a description.
        text: What exports them; ``None`` for shells.
        instances: The shells, by symbol.
        error: Why it could not be built.
    """

    family: Family
    key: str
    symbols: Mapping[str, str]
    text: Text | None = None
    instances: Mapping[str, Instance] = field(default_factory=dict)
    error: Exception | None = None

    def missing(self) -> dict[str, str]:
        """What no loaded library exports."""
        have = _loaded.get((self.family, self.key), {})
        return {s: about for s, about in self.symbols.items() if s not in have}

    def place(self) -> tuple[Family, str, frozenset[str]]:
        """What is to be built."""
        return self.family, self.key, frozenset(self.missing())

    @property
    def work(self) -> float:
        """What it takes to build, in shells."""
        return len(self.missing()) * (_FUNCTION if self.text else 1)


def addresses(instances: Sequence[Instance]) -> dict[Instance, int]:
    """The addresses of the shells of kernels. What is missing is built.

    Args:
        instances: Kernels with dtypes, ranks and parameters.

    Raises:
        LibraryError: An instance cannot have a shell, or could not be built or loaded.
    """
    provide(instances)
    return {i: _addresses[i] for i in instances}


def provide(instances: Sequence[Instance], texts: Sequence[Text] = ()) -> None:
    """Load what ``addresses`` and ``exported`` are to find. What is missing is built, together.

    Args:
        instances: Kernels with dtypes, ranks and parameters.
        texts: What else exports functions.

    Raises:
        LibraryError: An instance cannot have a shell, or something could not be built or loaded.
    """
    missing = [i for i in dict.fromkeys(instances) if i not in _addresses]
    if unknown := [i for i in missing if not i.source and i.kernel not in kernels()]:
        raise LibraryError(f"There is no kernel {unknown[0].kernel!r}.")
    families: dict[Family, list[Instance]] = {}
    for wanted in missing:
        families.setdefault(family_of(wanted), []).append(wanted)
    needs = [_need(family, wanted) for family, wanted in families.items()]
    _provide([*needs, *map(_text_need, texts)])
    for need, instances_of in zip(needs, families.values(), strict=True):
        have = _loaded[need.family, need.key]
        _addresses.update((i, have[i.symbol]) for i in instances_of)


def built(instances: Sequence[Instance]) -> bool:
    """Whether libraries with all of these are on this machine, so that none has to be built.

    Nothing is loaded or checked.
    """
    for wanted in instances:
        if wanted in _addresses:
            continue
        if not wanted.source and wanted.kernel not in kernels():
            return False
        family = family_of(wanted)
        known = kernel_libraries.kept(family.name, key_of(family))
        if not any(wanted.symbol in manifest.symbols for manifest in known):
            return False
    return True


def exported(text: Text) -> dict[str, int]:
    """The addresses of functions that a Mojo text exports. What is missing is built.

    Raises:
        LibraryError: It could not be built or loaded.
    """
    need = _text_need(text)
    _provide([need])
    have = _loaded[need.family, need.key]
    return {symbol: have[symbol] for symbol in text.symbols}


def kept(text: Text) -> bool:
    """Whether a library that ``exported`` would load is on this machine; nothing is checked."""
    found = kernel_libraries.kept(text.name, text_key(text.text, text.modules))
    return any(m.symbols.keys() >= text.symbols.keys() for m in found)


def _text_need(text: Text) -> _Need:
    key = text_key(text.text, text.modules)
    return _Need(Family(text.name, tuple(text.modules)), key, text.symbols, text)


def _need(family: Family, instances: Sequence[Instance]) -> _Need:
    return _Need(
        family,
        key_of(family),
        {i.symbol: str(i) for i in instances},
        instances={i.symbol: i for i in instances},
    )


def _provide(needs: Sequence[_Need]) -> None:
    """Load libraries with all that is needed, and build those that are missing, several at a time.

    Raises:
        LibraryError: One could not be built or loaded.
    """
    try:
        missing = [need for need in needs if not _find(need)]
        for need in missing:
            if error := _failed.get(need.place()):
                raise error
        if not missing:
            return
        with progress("kernels: " + ", ".join(n.family.name for n in missing)):
            _build_all(missing)
        for need in missing:
            if isinstance(need.error, LibraryError):
                _failed[need.place()] = need.error
            if need.error is not None:
                raise need.error
    except (CacheError, OSError) as e:
        raise LibraryError(f"Libraries of kernels cannot be written or read: {e}") from e


def _build_all(needs: Sequence[_Need]) -> None:
    """Build, here and in threads while the machine has compile slots."""
    waiting = deque(_batches(needs))
    count = len(waiting)
    threads = compile_threads(min(count, compile_jobs()))
    done = threading.Semaphore(0)

    def work() -> None:
        # What holds a slot finishes. This thread may hold one already, so it takes part: threads
        # that wait for slots are not waited for.
        with compile_slot(lock=False):
            while True:
                try:
                    batch = waiting.popleft()
                except IndexError:
                    return
                try:
                    _build_missing(batch, threads)
                except Exception as e:
                    for need in batch:
                        need.error = need.error or e
                finally:
                    done.release()

    for _ in range(min(count, compile_jobs()) - 1):
        threading.Thread(target=work, name="torch_max_backend-libraries", daemon=True).start()
    work()
    for _ in range(count):
        done.acquire()


def _batches(needs: Sequence[_Need]) -> list[list[_Need]]:
    """What to build as one library each: a library costs 6 CPU s before its first shell, so there
    are no more of them than can be built at a time, nor small ones. Kernels of users have theirs
    alone."""
    found = [[need] for need in needs if need.family.source]
    rest = sorted((n for n in needs if not n.family.source), key=lambda n: -n.work)
    worth = max(1, int(sum(n.work for n in rest) / _WORTH))
    loads = [0.0] * min(len(rest), compile_jobs(), worth)
    groups: list[list[_Need]] = [[] for _ in loads]
    for need in rest:
        least = loads.index(min(loads))
        loads[least] += need.work
        groups[least].append(need)
    return found + groups


def _build_missing(batch: Sequence[_Need], threads: int) -> None:
    """Build what is missing as one library; where that fails, each family's alone."""
    with ExitStack() as stack:
        for need in sorted(batch, key=lambda n: (n.family.name, n.key)):
            stack.enter_context(kernel_libraries.building(need.family.name, need.key))
        # Another process or thread may have been faster.
        missing = [need for need in batch if not _find(need)]
        if not missing:
            return
        try:
            _build_one(missing, threads)
            return
        except CompilationError as e:
            if len(missing) == 1:
                raise
            names = ", ".join(need.family.name for need in missing)
            log.warning("Each family is built alone of %s: %s", names, e)
        for need in missing:
            try:
                _build_one([need], threads)
            except CompilationError as e:
                need.error = e


def _build_one(needs: Sequence[_Need], threads: int) -> None:
    def make(folder: Path) -> Path:
        main, out = _write_sources(needs, folder), folder / "library.so"
        build(main, out, folder, defines(), instructions.features(), threads)
        return out

    parts = [kernel_libraries.Part(n.family.name, n.key, n.missing()) for n in needs]
    for need, manifest in zip(needs, kernel_libraries.add(parts, make), strict=True):
        log.info("Built %s: %s", manifest.file, ", ".join(manifest.symbols.values()))
        if problem := _load(need, manifest):
            kernel_libraries.discard(manifest, problem)
            raise LibraryError(
                f"The library {manifest.file} that was built does not load: {problem}"
            )


def _write_sources(needs: Sequence[_Need], folder: Path) -> Path:
    """Write the sources of a library of what is missing to a folder; returns the main file."""
    main = folder / "main.mojo"
    texts = [need.text.text for need in needs if need.text]
    shells = {s: n.instances[s] for n in needs if not n.text for s in n.missing()}
    if shells:
        texts.append(shells_text([shells[s] for s in sorted(shells)]))
    main.write_text("\n\n".join(texts))
    write_sources([need.family for need in needs], folder)
    return main


def _find(need: _Need) -> bool:
    """Load what is kept of what is needed; whether that is all."""
    if need.missing():
        for manifest in kernel_libraries.kept(need.family.name, need.key):
            if manifest.symbols.keys() & need.missing().keys():
                problem = kernel_libraries.problem(manifest) or _load(need, manifest)
                if problem:
                    kernel_libraries.discard(manifest, problem)
                else:
                    kernel_libraries.used(manifest)
    return not need.missing()


def _load(need: _Need, manifest: Manifest) -> str:
    """Load a library that was checked; what is wrong with it, "" if nothing is."""
    _load_runtime()
    try:
        library = ctypes.CDLL(str(manifest.file), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        found = {s: ctypes.cast(library[s], ctypes.c_void_p).value or 0 for s in manifest.symbols}
    except (OSError, AttributeError) as e:
        return str(e)
    with _loading:
        _loaded.setdefault((need.family, need.key), {}).update(found)
    return ""


@cache
def _load_runtime() -> None:
    """Load what the libraries call: found by its path, they need no path of their own, and so may
    be kept when the environment moves."""
    team_mode()
    for path in runtime_libraries():
        try:
            ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        except OSError as e:
            raise LibraryError(f"{path} cannot be loaded: {e}") from e
