"""Lookup of rows."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.embedding", samples=1),
]
