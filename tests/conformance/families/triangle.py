"""Triangles of matrices."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("tril", samples=4),
    Entry("triu", samples=4),
]
