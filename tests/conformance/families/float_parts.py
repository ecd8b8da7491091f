"""Signs, exponents and neighbours of floats."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("signbit"),
    Entry("copysign"),
    Entry("frexp"),
]
