"""Distances between rows."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("cdist", samples=6),
    Entry("dist"),
    Entry("nn.functional.pdist", samples=4),
]
