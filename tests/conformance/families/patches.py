"""Sliding windows as columns, and pixels moved between channels and space."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.unfold"),
    Entry("nn.functional.pixel_shuffle", samples=2),
    Entry("nn.functional.pixel_unshuffle", samples=2),
    Entry("nn.functional.channel_shuffle", samples=2),
]
