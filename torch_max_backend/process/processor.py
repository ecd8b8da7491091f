"""What the system says of the CPU."""

from __future__ import annotations

import platform
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


def processor_name() -> str:
    """The CPU's name as the system gives it, with "(AVX2)" behind it where it has that and no
    AVX-512: virtual machines leave the generation out."""
    info = cpu_info()
    name = info.get("model name") or platform.processor() or platform.machine()
    flags = info.get("flags", "").split()
    return f"{name} (AVX2)" if "avx2" in flags and "avx512f" not in flags else name
