"""The command line: ``python -m torch_max_backend --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from torch_max_backend.errors import MaxBackendError
from torch_max_backend.log import say

# Handlers import what they need, so that `--help` and mistakes on the command line load no MAX.


def main(arguments: Sequence[str] | None = None) -> Any:
    """Run a command.

    Args:
        arguments: The command line; that of the process by default.

    Returns:
        The argument for ``sys.exit``.
    """
    parser = argparse.ArgumentParser(
        prog="python -m torch_max_backend",
        description="Tools of torch_max_backend.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_cache, _add_operators):
        add(commands)
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = 3 if given[:2] == ["cache", "warm"] else len(given)
    parsed = parser.parse_args(given[:own])
    parsed.rest = given[own:]  # a script's command line, which argparse would change
    try:
        return parsed.run(parsed)
    except MaxBackendError as e:
        say(f"error: {e}")
        return 1


def _add_cache(commands: Any) -> None:
    """The commands ``cache ...``."""
    cache = commands.add_parser("cache", help="fill the artifact cache, move it between machines")
    actions = cache.add_subparsers(metavar="ACTION", required=True)

    warm = actions.add_parser(
        "warm",
        help="run a script so that what it compiles is in the cache",
        description="Runs SCRIPT as Python does, waits for graphs that compile in the background, "
        "and says on stderr what was compiled. Ends as the script ends; with 1 if the cache "
        "cannot be used or a graph could not be stored.",
        allow_abbrev=False,
    )
    warm.add_argument("script", metavar="SCRIPT")
    warm.add_argument("arguments", metavar="ARGS", nargs="*")
    warm.set_defaults(run=_warm)

    export = actions.add_parser(
        "export",
        help="write what is cached for this machine to a file",
        description="Writes the artifacts for this machine and these versions of torch, MAX and "
        "torch_max_backend, and the precompiled kernels, to FILE (a tar archive).",
        allow_abbrev=False,
    )
    export.add_argument("file", metavar="FILE")
    export.add_argument(
        "--all", action="store_true", help="artifacts for other machines and versions too"
    )
    export.set_defaults(run=_export)

    take = actions.add_parser(
        "import",
        help="add to the cache what a file holds for this machine",
        description="Checks FILE, which `cache export` wrote, and adds to the cache what fits this "
        "machine. Artifacts are native code: import only from whom you trust.",
        allow_abbrev=False,
    )
    take.add_argument("file", metavar="FILE")
    take.set_defaults(run=_import)


def _add_operators(commands: Any) -> None:
    """The command ``operators``."""
    operators = commands.add_parser(
        "operators",
        help="what becomes of each ATen operator, as Markdown",
        description="Prints which ATen operators are lowered, decomposed or refused, and why.",
        allow_abbrev=False,
    )
    operators.set_defaults(run=_operators)


def _operators(parsed: argparse.Namespace) -> int:
    from torch_max_backend.convert.catalogue import markdown

    sys.stdout.write(markdown())
    return 0


def _warm(parsed: argparse.Namespace) -> Any:
    from torch_max_backend.cache.store import usable_folder
    from torch_max_backend.cache.warm import warm_script

    folder = usable_folder()
    try:
        warmed, status = warm_script(parsed.script, parsed.rest)
    except OSError as e:
        say(f"error: the script cannot be read: {e}")
        return 2
    sys.stdout.flush()
    failed = f", {warmed.failed} failed (the warnings say why)" if warmed.failed else ""
    say(
        f"torch_max_backend: {_count(warmed.compiled, 'graph')} compiled, {warmed.loaded} there "
        f"already{failed}, {warmed.seconds:.1f} s, in {folder}"
    )
    return status or int(warmed.failed > 0)


def _export(parsed: argparse.Namespace) -> int:
    from torch_max_backend.cache.transfer import export_cache, summary

    done = export_cache(parsed.file, everything=parsed.all)
    kernels = " and the kernels" if done.kernels else ""
    _tell(
        f"{_count(done.entries, 'artifact')}{kernels} exported to {parsed.file}, "
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
        f"{_count(done.entries, 'artifact')}{kernels} imported into {usable_folder()}, "
        f"{done.present} there already",
        summary(done.skipped),
    )
    return 0


def _tell(*lines: str) -> None:
    sys.stdout.write("\n".join(line for line in lines if line) + "\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


if __name__ == "__main__":
    sys.exit(main())
