"""Choosing between values, and keeping values within bounds."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("where"),
    Entry("masked_fill"),
    Entry("clamp"),
    Entry("clamp_min"),
    Entry("clamp_max"),
    Entry("addcmul"),
    Entry("addcdiv"),
    Entry("lerp"),
]
