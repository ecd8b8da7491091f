"""Distinct values."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("unique", samples=6),
    Entry("unique_consecutive", samples=6),
]
