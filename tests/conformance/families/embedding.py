"""Lookup of rows."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.embedding", samples=1),
    Entry("nn.functional.embedding_bag", samples=1),
]
