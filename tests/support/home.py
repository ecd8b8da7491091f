"""The cache directory of the run of tests, also in processes that a test starts with another."""

from __future__ import annotations

import os
from pathlib import Path

from torch_max_backend import environment

HOME = Path(os.environ.setdefault("TESTS_CACHE_DIR", str(environment.cache_dir())))
