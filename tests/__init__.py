"""Tests of torch_max_backend."""

import os

# Read where torch is first imported. Several processes share the processors: an OpenMP thread that
# waits for work in a loop, 3 ms by default, keeps from them what others want.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
