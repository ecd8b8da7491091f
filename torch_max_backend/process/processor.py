"""What the system says of the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def cpu_info() -> Mapping[str, str]:
    """The entries of the first CPU in ``/proc/cpuinfo``, by name, in its order; none where there is
    no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
