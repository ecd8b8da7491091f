"""Softmax and its logarithm."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("softmax"),
    Entry("softmax.with_dtype"),
    Entry("log_softmax"),
    Entry("log_softmax.with_dtype"),
    Entry("torch.ops.aten._safe_softmax.default"),
    Entry("nn.functional.softmin"),
    Entry("masked.softmax"),
    Entry("masked.log_softmax"),
    # Python code of torch's, written out (``graph/passes/inline_higher_order.py``).
    Entry("nn.functional.linear_cross_entropy.chunked", samples=2),
    Entry("nn.functional.linear_cross_entropy.chunked_none", samples=2),
]
