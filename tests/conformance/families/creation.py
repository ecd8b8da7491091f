"""Tensors from nothing."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("fill"),
    Entry("zeros"),
    Entry("zeros_like"),
    Entry("ones"),
    Entry("ones_like"),
    Entry("full"),
    Entry("full_like"),
    Entry("new_full"),
    Entry("new_ones"),
    Entry("new_zeros"),
    Entry("scalar_tensor"),
    Entry("arange"),
    Entry("linspace"),
    Entry("linspace.tensor_overload"),
    Entry("eye"),
    Entry("logspace"),
    Entry("zero_"),
]
