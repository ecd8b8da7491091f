"""What a mask picks."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nonzero"),
    Entry("nonzero_static"),
    Entry("argwhere"),
    Entry("masked_select", samples=4),
    Entry("tril_indices"),
    Entry("triu_indices"),
]
