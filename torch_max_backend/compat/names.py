"""What is said where torch or MAX lack a name that this package needs."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import requires, version
from pathlib import Path


class VersionError(ImportError):
    """torch or MAX lack something that this package uses: its version is not one that works."""


@contextmanager
def names_of(package: str) -> Iterator[None]:
    """Around the imports of private names of a package.

    Args:
        package: The name that it is installed by: ``"torch"`` or ``"max"``.

    Raises:
        VersionError: One of the names is not there; it says which, and which versions have it.
    """
    try:
        yield
    except (ImportError, AttributeError) as e:
        wanted = [r for r in requires("torch-max-backend") or () if r.startswith(package)]
        raise VersionError(
            f"{package} {version(package)} does not have what torch_max_backend uses: {e}. "
            f"Versions that work: {', '.join(wanted) or 'see pyproject.toml'}."
        ) from e


def missing() -> Iterator[str]:
    """Import what is used of torch and MAX beyond their public names; says what is not there."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        try:
            import_module(f"{__package__}.{module.name}")
        except ImportError as e:
            if not _of_others(e):
                yield str(e)


def _of_others(error: ImportError) -> bool:
    """Whether a package is not installed that only torch's own tests need."""
    cause = error.__cause__
    name = cause.name if isinstance(cause, ModuleNotFoundError) else None
    return name is not None and name.partition(".")[0] not in ("torch", "max")


__all__ = ["VersionError", "missing", "names_of"]
