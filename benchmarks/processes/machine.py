"""What was measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

from torch_max_backend.process.processor import cpu_info


def machine(*packages: str) -> dict[str, Any]:
    """The processor, its cores, and the versions of these packages."""
    cpu = cpu_info().get("model name") or platform.processor() or platform.machine()
    return {"cpu": cpu, "cores": os.cpu_count(), "versions": {p: version(p) for p in packages}}
