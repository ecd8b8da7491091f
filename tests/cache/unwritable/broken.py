"""What makes writing fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT, errno.EACCES, errno.ENOTDIR]
each_error = pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
each_step = pytest.mark.parametrize("step", ["mkdir", "open", "replace", "all"])
PARTS = {"graph": "77"}


class Broken:
    """Makes writing under some folders fail.

    Args:
        patch: Takes the changes back.
        error: What writing fails with.
        step: "mkdir", "open" (for writing), "replace", "unlink", or "all".
    """

    def __init__(self, patch: pytest.MonkeyPatch, error: int, step: str = "all") -> None:
        self.error = error
        self.folders: list[str] = []
        steps: dict[str, list[tuple[Any, str]]] = {
            "mkdir": [(os, "mkdir")],
            "open": [(os, "open"), (io, "open"), (builtins, "open")],
            "replace": [(os, "replace"), (os, "rename")],
            "unlink": [(os, "unlink"), (os, "remove"), (os, "rmdir")],
        }
        for owner, name in chain(*steps.values()) if step == "all" else steps[step]:
            patch.setattr(owner, name, self._failing(getattr(owner, name), name == "open"))

    def _failing(self, real: Callable[..., Any], opens: bool) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            how = args[0] if args else kwargs.get("mode", "r")
            if opens and isinstance(how, str):
                writes = any(c in how for c in "wax+")
            else:
                writes = not opens or bool(how & (os.O_CREAT | os.O_WRONLY | os.O_RDWR))
            if writes and any(str(path).startswith(f) for f in self.folders):
                raise OSError(self.error, os.strerror(self.error), str(path))
            return real(path, *args, **kwargs)

        return call
