"""Indexing with tensors."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("index_put", samples=4),
    Entry("index_add", samples=2),
    Entry("index_copy", samples=2),
    Entry("index_fill", samples=2),
]
