"""The same elements under other dims."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("view"),
    Entry("reshape", samples=2),
    Entry("unsqueeze", samples=2),
    Entry("squeeze", samples=2),
    Entry("squeeze.multiple", samples=2),
    Entry("permute", samples=2),
    Entry("transpose", samples=2),
    Entry("t", samples=2),
    Entry("movedim", samples=2),
    Entry("expand"),
    Entry("repeat", samples=4),
    Entry("tile", samples=2),
    Entry("flip"),
    Entry("roll"),
    Entry("cat", samples=5),
    Entry("stack", samples=2),
]
