"""Pooling."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.max_pool1d"),
    Entry("nn.functional.max_pool2d", samples=4),
    Entry("nn.functional.max_pool3d"),
    Entry("nn.functional.avg_pool1d"),
    Entry("nn.functional.avg_pool2d", samples=4),
    Entry("nn.functional.avg_pool3d"),
    Entry("nn.functional.adaptive_avg_pool1d"),
    Entry("nn.functional.adaptive_avg_pool2d"),
    Entry("nn.functional.adaptive_avg_pool3d"),
    Entry("nn.functional.adaptive_max_pool1d"),
    Entry("nn.functional.adaptive_max_pool2d"),
    Entry("nn.functional.adaptive_max_pool3d"),
]
