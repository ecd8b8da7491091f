"""Padding."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.pad.constant", samples=5),
    Entry("constant_pad_nd", samples=5),
    Entry("nn.functional.pad.reflect", samples=4),
    Entry("nn.functional.pad.replicate", samples=4),
    Entry("nn.functional.pad.replicate_negative", samples=2),
]
