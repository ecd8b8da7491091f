"""Comparisons and logic."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("eq"),
    Entry("ne"),
    Entry("lt"),
    Entry("le"),
    Entry("gt"),
    Entry("ge"),
    Entry("logical_and"),
    Entry("logical_or"),
    Entry("logical_xor"),
    Entry("logical_not"),
]
