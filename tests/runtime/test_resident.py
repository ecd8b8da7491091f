"""Code of MAX's graph builder that a process no longer needs is not resident."""

import subprocess
import sys

import pytest

from torch_max_backend.runtime.resident import _is_builder, unwritten

MAPS = """\
7f0000000000-7f0000010000 r--p 00000000 08:01 1  /env/modular/lib/libmax.so
7f0000010000-7f0000030000 r-xp 00010000 08:01 1  /env/modular/lib/libmax.so
7f0000030000-7f0000040000 r--p 00030000 08:01 1  /env/modular/lib/libmax.so
7f0000040000-7f0000050000 rw-p 00040000 08:01 1  /env/modular/lib/libmax.so
7f0000050000-7f0000060000 rw-p 00000000 00:00 0
7f0000060000-7f0000070000 r-xp 00000000 08:01 2  /a path/max/_core.cpython-311-x86_64-linux-gnu.so
7f0000070000-7f0000080000 r-xp 00000000 08:01 3  /env/other/_core.cpython-311-x86_64-linux-gnu.so
7f0000080000-7f0000090000 r-xp 00000000 08:01 4  /env/torch/lib/libtorch_cpu.so
7f0000090000-7f00000a0000 r-xp 00000000 00:00 0  [vdso]
"""


def test_only_what_the_loader_never_writes_to_is_given_back():
    assert list(unwritten(MAPS.splitlines(keepends=True), _is_builder)) == [
        (0x7F0000000000, 0x10000),
        (0x7F0000010000, 0x20000),
        (0x7F0000060000, 0x10000),
    ]


RESIDENT = """
import re
import torch
from torch_max_backend import max_backend

def resident(library):
    found, counted = 0, False
    for line in open("/proc/self/smaps"):
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            counted = line.rstrip().endswith("/" + library)
        elif counted and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found
"""

SCRIPT = """
options = {"engine": "steps", "fallback": "error", "cache": False}
x = torch.ones(3)
first = torch.compile(lambda x: x + 1, backend=max_backend, options=options)
assert torch.equal(first(x), x + 1)
print(resident("libmax.so"))
second = torch.compile(lambda x: x * 3, backend=max_backend, options=options)
assert torch.equal(second(x), x * 3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_planned_graph_leaves_little_of_the_builder_resident():
    done = subprocess.run([sys.executable, "-c", RESIDENT + SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # In KB. Without a release it is about 50 MB.
    assert int(done.stdout) < 20_000


GPU_SCRIPT = """
compiled = torch.compile(lambda x: x + 1, backend="max", options={"fallback": "error"})
assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
print(resident("libtriton.so"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_code_for_gpus_is_not_resident_where_none_is_used():
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT + GPU_SCRIPT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # In KB. Without a release it is about 64 MB.
    assert int(done.stdout) < 10_000
