"""Parts of a tensor."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("__getitem__", samples=8),
    Entry("select", samples=2),
    Entry("split", samples=2),
    Entry("split.list_args", samples=2),
    Entry("split_with_sizes", samples=2),
    Entry("unsafe_split", samples=1),
    Entry("chunk", samples=2),
    Entry("unbind", samples=2),
    Entry("slice_scatter", samples=5),
    Entry("select_scatter"),
    Entry("narrow_copy"),
]
