"""Elements by index, one index for each result."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("gather", samples=4),
    Entry("index_select"),
    Entry("take", samples=4),
    Entry("take_along_dim", samples=2),
    Entry("put", samples=4),
    Entry("masked_scatter"),
    Entry("scatter", samples=8),
    Entry("scatter_add", samples=4),
    Entry("scatter_reduce.sum", samples=4),
    Entry("scatter_reduce.prod", samples=2),
    Entry("scatter_reduce.mean", samples=4),
    Entry("scatter_reduce.amax", samples=4),
    Entry("scatter_reduce.amin", samples=2),
    Entry("index_reduce.mean", samples=2),
    Entry("index_reduce.amax", samples=2),
    Entry("index_reduce.amin", samples=2),
    Entry("index_reduce.prod", samples=2),
]
