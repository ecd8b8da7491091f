"""Reductions of segments."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("_segment_reduce.lengths", samples=4),
    Entry("_segment_reduce.offsets", samples=4),
]
