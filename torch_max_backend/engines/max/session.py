"""The one MAX session of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_max_backend.process import fork_safety

if TYPE_CHECKING:
    from max.engine import InferenceSession

_session: InferenceSession | None = None
_session_lock = fork_safety.lock()


def session() -> InferenceSession:
    """The process's session, on the CPU and every accelerator MAX sees.

    Raises:
        ForkError: This process was forked from one that uses MAX.
    """
    global _session
    fork_safety.check()
    if _session is None:
        with _session_lock:
            if _session is None:
                from max import driver, engine

                fork_safety.use()
                count = driver.accelerator_count()
                devices = [driver.CPU(), *(driver.Accelerator(i) for i in range(count))]
                # num_threads stays out: a value other than the default aborts the process.
                _session = engine.InferenceSession(devices=devices)
    return _session
