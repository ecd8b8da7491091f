"""Normalizations over layers, batches, groups."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.layer_norm"),
    Entry("native_layer_norm"),
    Entry("nn.functional.group_norm"),
    Entry("native_group_norm"),
    Entry("nn.functional.normalize"),
    Entry("nn.functional.local_response_norm"),
    Entry("_batch_norm_with_update"),
]
