"""Operations on bits, shifts, divisors."""

import torch

from tests.conformance.entry import Entry

_INTEGERS = (torch.int64, torch.bool, torch.int32, torch.uint8)

ENTRIES = [
    Entry("bitwise_and", dtypes=_INTEGERS),
    Entry("bitwise_or"),
    Entry("bitwise_xor"),
    Entry("bitwise_not"),
    Entry("bitwise_left_shift", dtypes=_INTEGERS),
    Entry("bitwise_right_shift", dtypes=_INTEGERS),
    Entry("__rand__"),
    Entry("__ror__"),
    Entry("__rxor__"),
    Entry("gcd", dtypes=_INTEGERS),
    Entry("lcm", dtypes=_INTEGERS),
    Entry("nextafter"),
    Entry("ldexp"),
]
