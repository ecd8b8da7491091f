"""Views that only strides describe."""

from tests.conformance.entry import Entry

BEYOND = {
    "as_strided.partial_views-float32-static-2": "it reaches memory outside of its argument",
    "as_strided.partial_views-float32-dynamic-2": "it reaches memory outside of its argument",
}

ENTRIES = [
    Entry("as_strided", samples=5),
    Entry("as_strided.partial_views", refused=BEYOND),
    Entry("as_strided_scatter", samples=4),
    Entry("unfold", samples=4),
    Entry("diagonal", samples=4),
    Entry("diagonal_scatter", samples=4),
]
