"""torch's decompositions, and the formulas that it shares among them."""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._decomp import _core_aten_decompositions_post_autograd as core_aten_decompositions
    from torch._decomp import get_decompositions
    from torch._decomp.decompositions import (
        gather_params,
        gru_cell,
        index_add,
        one_layer_lstm,
        one_layer_rnn,
        rnn_cell,
        upsample_compute_output_size,
    )
    from torch._higher_order_ops.flex_attention import sdpa_dense, sdpa_dense_backward
    from torch._prims_common import suggest_memory_format

__all__ = [
    "core_aten_decompositions",
    "gather_params",
    "get_decompositions",
    "gru_cell",
    "index_add",
    "one_layer_lstm",
    "one_layer_rnn",
    "rnn_cell",
    "sdpa_dense",
    "sdpa_dense_backward",
    "suggest_memory_format",
    "upsample_compute_output_size",
]
