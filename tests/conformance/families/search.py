"""Places in sorted boundaries, and counts by value."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("searchsorted", samples=6),
    Entry("bucketize"),
    Entry("histc"),
    Entry("histogramdd", samples=4),
    Entry("bincount", samples=4),
]
