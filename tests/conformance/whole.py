"""``python -m tests.conformance.whole``: every page of conformance, by the steps engine.

Samples of torch's operator database, static and with symbolic sizes, gradients in float32 and
float64, subnormal numbers, modules and optimizers: half an hour on two cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

_SWEEP = "tests.conformance.sweep"
_GRADIENTS = [_SWEEP, "--gradients", "--dtypes"]

# Page, and what writes it.
PAGES = {
    "conformance": [_SWEEP],
    "conformance-dynamic": [_SWEEP, "--dynamic", "--samples", "1"],
    "conformance-gradients": [*_GRADIENTS, "float32", "--samples", "2"],
    "conformance-gradients-dynamic": [*_GRADIENTS, "float32", "--dynamic", "--samples", "1"],
    "conformance-gradients-float64": [*_GRADIENTS, "float64", "--samples", "1"],
    "conformance-subnormals": [
        *(_SWEEP, "--subnormals", "--samples", "1"),
        *("--dtypes", "float32", "float64", "float16", "bfloat16"),
    ],
    "conformance-modules": ["tests.conformance.layers"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help=f"some of: {', '.join(PAGES)}")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if unknown := set(given.pages) - set(PAGES):
        parser.error(f"no such page: {', '.join(sorted(unknown))}")
    start = time.monotonic()
    for page in given.pages or PAGES:
        command = [sys.executable, "-m", *PAGES[page], "--jobs", str(given.jobs)]
        subprocess.run([*command, "--markdown", f"docs/{page}.md"], check=True)
        print(f"{page}: {(time.monotonic() - start) / 60:.1f} minutes", file=sys.stderr)


if __name__ == "__main__":
    main()
