"""What was measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """The processor, its cores, and the versions of these packages."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = models[0].split(":")[1].strip() if models else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "versions": {p: version(p) for p in packages}}
