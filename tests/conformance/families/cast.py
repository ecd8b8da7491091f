"""Copies, and copies to another dtype."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("to"),
    Entry("clone"),
    Entry("contiguous"),
    Entry("float"),
    Entry("double"),
    Entry("half"),
    Entry("bfloat16"),
    Entry("int"),
    Entry("long"),
    Entry("short"),
    Entry("byte"),
    Entry("char"),
    Entry("bool"),
]
