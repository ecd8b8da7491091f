"""What was measured on."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from torch_max_backend.process.processor import processor_name


def machine(*packages: str) -> dict[str, Any]:
    """The processor, its cores, and the versions of these packages."""
    versions = {p: version(p) for p in packages}
    return {"cpu": processor_name(), "cores": os.cpu_count(), "versions": versions}
