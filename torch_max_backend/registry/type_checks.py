"""Type hints of lowerings, checked at run time by beartype where that can be imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch_max_backend.log import get_logger

log = get_logger("convert")

# What is raised where a value does not fit a hint.
VIOLATIONS: tuple[type[Exception], ...] = ()
_failure: Exception | None = None

# Once, with the backend, and not at the first compile: nnsight and its like give `object` itself a
# method that has no hash, and beartype cannot be imported from then on. What was imported before
# goes on working. The checks help those who write lowerings; no compile should fail for want of
# them.
try:
    from beartype import BeartypeConf, beartype
    from beartype.roar import BeartypeCallHintViolation

    VIOLATIONS = (BeartypeCallHintViolation,)
except Exception as e:
    _failure = e


@functools.cache
def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering whose type hints are checked at each call; the lowering itself, and one warning
    for the process, without beartype."""
    if _failure is not None:
        _warn()
        return function
    return beartype(conf=BeartypeConf(is_color=False))(function)


@functools.cache
def _warn() -> None:
    log.warning(
        "The type hints of lowerings are not checked, because beartype cannot be imported (%s: %s)."
        " Results are the same. To have the checks, use torch_max_backend.max_backend before "
        "packages that add methods to every object are imported, as nnsight does. To be without "
        "them and this warning, set TORCH_MAX_BACKEND_BEARTYPE=0.",
        type(_failure).__name__,
        _failure,
    )
