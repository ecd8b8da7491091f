"""The command line: ``python -m torch_max_backend --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch_max_backend.bench.command import add_command
from torch_max_backend.errors import MaxBackendError
from torch_max_backend.log import say, several
from torch_max_backend.operator_tools.command import add_commands

# Handlers import what they need, so that `--help` and mistakes on the command line load no MAX.


def main(arguments: Sequence[str] | None = None) -> Any:
    """Run a command.

    Args:
        arguments: The command line; that of the process by default.

    Returns:
        The argument for ``sys.exit``.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for two in (["ops", "new"], ["bench", "compare"]):
        if given[:2] == two:
            given[:2] = [" ".join(two)]  # a command of its own: another second word is a name
    own = _own(given)
    parsed = parser().parse_args(given[:own])
    parsed.rest = given[own:]  # a script's command line, which argparse would change
    try:
        return parsed.run(parsed)
    except MaxBackendError as e:
        say(f"error: {e}")
        return 1


def parser() -> argparse.ArgumentParser:
    """Knows every command."""
    found = argparse.ArgumentParser(
        prog="python -m torch_max_backend",
        description="Tools of torch_max_backend.",
        allow_abbrev=False,
    )
    commands = found.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_cache, _add_doctor, _add_explain, _add_operators):
        add(commands)
    add_commands(commands, _command)
    add_command(commands, _command)
    return found


def _own(given: list[str]) -> int:
    """How many words of a command line are not the command line of a script that it names."""
    if given[:2] == ["cache", "warm"]:
        return 4 if given[2:3] == ["--libraries"] else 3
    if given[:1] != ["explain"]:
        return len(given)
    end = 1
    while end < len(given) and given[end].startswith("-"):
        end += 2 if given[end] in ("--format", "--out") else 1
    return end + 1


def _add_cache(commands: Any) -> None:
    """The commands ``cache ...``."""
    cache = commands.add_parser("cache", help="fill the artifact cache, move it between machines")
    actions = cache.add_subparsers(metavar="ACTION", required=True)
    _add_filling(actions)
    _add_keeping(actions)


def _add_filling(actions: Any) -> None:
    """The commands that fill the cache, or move it."""
    warm = _command(
        actions,
        _warm,
        "warm",
        "run a script so that what it compiles is in the cache",
        "Runs SCRIPT as Python does, waits for graphs that compile in the background, and says on "
        "stderr what was compiled. Ends as the script ends; with 1 if the cache cannot be used or "
        "a graph could not be stored. With --libraries, SCRIPT may be left out.",
    )
    warm.add_argument(
        "--libraries",
        action="store_true",
        help="first build the libraries of kernels that most models on CPU need",
    )
    _add_script(warm, optional=True)
    export = _command(
        actions,
        _export,
        "export",
        "write what is cached for this machine to a file",
        "Writes the artifacts for this machine and these versions of torch, MAX and "
        "torch_max_backend, and the precompiled kernels, to FILE (a tar archive).",
    )
    export.add_argument("file", metavar="FILE")
    export.add_argument(
        "--all", action="store_true", help="artifacts for other machines and versions too"
    )
    take = _command(
        actions,
        _import,
        "import",
        "add to the cache what a file holds for this machine",
        "Checks FILE, which `cache export` wrote, and adds to the cache what fits this machine. "
        "Artifacts are native code: import only from whom you trust.",
    )
    take.add_argument("file", metavar="FILE")


def _add_keeping(actions: Any) -> None:
    """The commands that show what is in the cache, check it, and remove from it."""
    _command(actions, _list, "list", "what is in the cache", "Lists the artifacts.")
    prune = _command(
        actions,
        _prune,
        "prune",
        "make room",
        "Removes the artifacts that were not used for the longest time.",
    )
    prune.add_argument(
        "--max-mb", type=float, metavar="N", help="megabytes that may stay (default: 8590)"
    )
    prune.add_argument(
        "--misfits", action="store_true", help="first those for other machines or versions"
    )
    _command(
        actions,
        _verify,
        "verify",
        "check every artifact",
        "Compares checksums, also of libraries of kernels, removes what is damaged. Ends with 1 if "
        "something was.",
    )
    _command(
        actions,
        _clear,
        "clear",
        "remove everything",
        "Removes all artifacts, precompiled kernels and libraries of kernels.",
    )


def _add_doctor(commands: Any) -> None:
    """The command ``doctor``."""
    doctor = _command(
        commands,
        _doctor,
        "doctor",
        "whether everything works here, and what to do if not",
        "Looks at versions, settings, devices and the cache, compiles and runs a small model on "
        "each device. Ends with 1 if something is wrong.",
    )
    doctor.add_argument("--no-compile", action="store_true", help="leave out the model")


def _add_explain(commands: Any) -> None:
    """The command ``explain``."""
    explain = _command(
        commands,
        _explain,
        "explain",
        "what would become of the models that a script compiles",
        "Runs SCRIPT as Python does. What it compiles with this backend is not compiled: it runs "
        "in eager PyTorch, and the report says which operators MAX would take.",
    )
    formats = ("text", "markdown", "json", "svg")
    explain.add_argument("--format", choices=formats, default="text")
    explain.add_argument("--out", metavar="FILE", help="write the report there, not on stdout")
    _add_script(explain)


def _add_operators(commands: Any) -> None:
    """The command ``operators``."""
    _command(
        commands,
        _operators,
        "operators",
        "what becomes of each ATen operator, as Markdown",
        "Prints which ATen operators are lowered, decomposed or refused, and why.",
    )


def _command(
    commands: Any,
    run: Callable[[argparse.Namespace], Any],
    name: str,
    help: str,
    description: str,
) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
    added.set_defaults(run=run)
    return added


def _add_script(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument("script", metavar="SCRIPT", nargs="?" if optional else None)
    command.add_argument("arguments", metavar="ARGS", nargs="*")


def _operators(parsed: argparse.Namespace) -> int:
    from torch_max_backend.operator_tools.coverage import markdown

    sys.stdout.write(markdown())
    return 0


def _warm(parsed: argparse.Namespace) -> Any:
    from torch_max_backend.ahead_of_time.warm import warm_script
    from torch_max_backend.cache.store import usable_folder

    folder = usable_folder()
    if parsed.libraries:
        _warm_libraries(folder.parent)
    if parsed.script is None:
        if not parsed.libraries:
            say("error: SCRIPT is missing")
        return 0 if parsed.libraries else 2
    try:
        warmed, status = warm_script(parsed.script, parsed.rest)
    except OSError as e:
        say(f"error: the script cannot be read: {e}")
        return 2
    sys.stdout.flush()
    failed = f", {warmed.failed} failed (the warnings say why)" if warmed.failed else ""
    say(
        f"torch_max_backend: {several(warmed.compiled, 'graph')} compiled, {warmed.loaded} there "
        f"already{failed}, {warmed.seconds:.1f} s, in {folder}"
    )
    return status or int(warmed.failed > 0)


def _warm_libraries(folder: Path) -> None:
    import time

    from torch_max_backend.engines.steps.standard import build_standard

    begin = time.perf_counter()
    found = build_standard()
    seconds = time.perf_counter() - begin
    say(
        f"torch_max_backend: {several(len(found), 'library', 'libraries')} of kernels, "
        f"{sum(len(m.symbols) for m in found)} functions, {seconds:.1f} s, in {folder}"
    )


def _export(parsed: argparse.Namespace) -> int:
    from torch_max_backend.cache.transfer import export_cache, summary

    done = export_cache(parsed.file, everything=parsed.all)
    kernels = " and the kernels" if done.kernels else ""
    _tell(
        f"{several(done.entries, 'artifact')}{kernels} exported to {parsed.file}, "
        f"{done.size / 1e6:.1f} MB",
        summary(done.skipped),
    )
    return 0


def _import(parsed: argparse.Namespace) -> int:
    from torch_max_backend.cache.store import usable_folder
    from torch_max_backend.cache.transfer import import_cache, summary

    done = import_cache(parsed.file)
    kernels = " and the kernels" if done.kernels else ""
    _tell(
        f"{several(done.entries, 'artifact')}{kernels} imported into {usable_folder()}, "
        f"{done.present} there already",
        summary(done.skipped),
    )
    return 0


def _list(parsed: argparse.Namespace) -> int:
    import time

    from torch_max_backend.cache.maintenance import entries, libraries
    from torch_max_backend.cache.store import usable_folder

    found = entries()
    for entry in found:
        about = entry.problem or entry.versions
        if entry.misfit:
            about += f" (another {', '.join(entry.misfit)})"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        size = f"{entry.size / 1e6:8.2f} MB"
        _tell(f"{entry.path.stem[:16]}  {size}  {used}  {several(entry.graphs, 'graph')}  {about}")
    kept = libraries()
    for library in kept:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(library.used))
        about = library.problem or several(library.kernels, "kernel")
        size = f"{library.size / 1e6:8.2f} MB"
        _tell(f"{library.path.stem[:16]:16}  {size}  {used}  library of {library.family}  {about}")
    total = sum(e.size for e in found) / 1e6
    _tell(f"{several(len(found), 'artifact')}, {total:.1f} MB, in {usable_folder()}")
    if kept:
        total = sum(library.size for library in kept) / 1e6
        _tell(f"{several(len(kept), 'library', 'libraries')} of kernels, {total:.1f} MB")
    return 0


def _prune(parsed: argparse.Namespace) -> int:
    from torch_max_backend.cache import maintenance, store

    most = store.MAX_BYTES if parsed.max_mb is None else int(parsed.max_mb * 1e6)
    removed = maintenance.prune(most, misfits=parsed.misfits)
    _tell(
        f"{several(len(removed), 'artifact')} removed, {sum(e.size for e in removed) / 1e6:.1f} MB"
    )
    return 0


def _verify(parsed: argparse.Namespace) -> int:
    from torch_max_backend.cache import maintenance

    bad = list(maintenance.verify())
    libraries = list(maintenance.verify_libraries())
    for path, problem in [(e.path, e.problem) for e in bad] + [
        (e.path, e.problem) for e in libraries
    ]:
        _tell(f"{path.name} removed: {problem}")
    _tell(f"{several(len(bad), 'damaged artifact')}")
    if libraries:
        _tell(f"{several(len(libraries), 'library', 'libraries')} of kernels damaged")
    return int(bool(bad or libraries))


def _clear(parsed: argparse.Namespace) -> int:
    from torch_max_backend.cache.maintenance import clear

    count, size = clear()
    _tell(f"{several(count, 'file')} removed, {size / 1e6:.1f} MB")
    return 0


def _doctor(parsed: argparse.Namespace) -> int:
    from torch_max_backend.doctor import main

    return main(compile=not parsed.no_compile)


def _explain(parsed: argparse.Namespace) -> Any:
    from torch_max_backend.ahead_of_time.warm import run_script
    from torch_max_backend.explanation import explained

    try:
        with open(parsed.script, "rb"):
            pass  # an error of this command, not one of the script
    except OSError as e:
        say(f"error: the script cannot be read: {e}")
        return 2
    with explained() as found:
        status = run_script(parsed.script, parsed.rest)
    report = getattr(found, parsed.format)()
    if parsed.out:
        try:
            with open(parsed.out, "w") as file:
                file.write(report if report.endswith("\n") else report + "\n")
        except OSError as e:
            say(f"error: the report cannot be written: {e}")
            return 2
    else:
        sys.stdout.flush()
        _tell(report.rstrip("\n"))
    return status


def _tell(*lines: str) -> None:
    sys.stdout.write("\n".join(line for line in lines if line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
