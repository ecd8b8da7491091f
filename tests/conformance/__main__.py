"""``python -m tests.conformance add mul --dtypes float32 int64 --limit 3``: run samples now."""

from __future__ import annotations

import argparse

import torch

from tests.conformance.reference import complaint
from tests.conformance.samples import OPS, programs
from tests.conformance.together import compile_together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="+", help="op_db names; a trailing * matches any rest")
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--limit", type=int, default=3)
    parser.add_argument("--static-only", action="store_true")
    given = parser.parse_args()
    names = [
        n
        for n in OPS
        if any(n == o or (o.endswith("*") and n.startswith(o[:-1])) for o in given.ops)
    ]
    if not names:
        parser.error(f"no operator of op_db that is tested has such a name: {' '.join(given.ops)}")
    cases = []
    for name in names:
        for dtype in given.dtypes:
            kind = getattr(torch, dtype)
            if kind in OPS[name].dtypes:
                for dynamic in [False] if given.static_only else [False, True]:
                    cases += programs(name, kind, limit=given.limit, dynamic=dynamic)
    compile_together(cases)
    bad = 0
    for case in cases:
        found = complaint(case)
        if found:
            bad += 1
            print(f"FAIL {case.name}: {found}\n")
    print(f"{len(cases) - bad} of {len(cases)} samples agree")


if __name__ == "__main__":
    main()
