"""Which lowerings the conformance tables do not reach."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import torch

from tests.conformance.entry import Entry

# Lowerings that no op_db sample reaches, and the tests that do.
ELSEWHERE: dict[str, str] = dict.fromkeys(
    (
        "aten._unsafe_index.Tensor", "aten._unsafe_index_put.default", "aten._unsafe_view.default",
        "aten.embedding_dense_backward.default", "aten.scatter.value", "aten.scatter.value_reduce",
        "aten.select_backward.default", "aten.slice_backward.default",
    ),
    "tests/ops/test_movement.py",
)  # fmt: skip
ELSEWHERE |= dict.fromkeys(
    (
        "aten._native_batch_norm_legit.no_stats",
        "aten._native_batch_norm_legit_functional.default",
        "aten._native_batch_norm_legit_no_training.default",
    ),
    "tests/conformance/test_special_values.py",
)
ELSEWHERE |= dict.fromkeys(
    ("torch_max_backend.fused_addmm.default", "torch_max_backend.fused_convolution.default"),
    "tests/bank/test_products.py",
)

# Reached by no sample; each is a line of a table, or shares its body with one that is.
ELSEWHERE |= dict.fromkeys(
    (
        "aten.bitwise_and.Scalar", "aten.bitwise_and.Scalar_Tensor", "aten.bitwise_and.Tensor",
        "aten.bitwise_xor.Scalar", "aten.bitwise_xor.Scalar_Tensor", "aten.bitwise_xor.Tensor",
    ),
    "made from one table with bitwise_or, which has samples; tests/models (ESM) for and",
)  # fmt: skip
ELSEWHERE |= dict.fromkeys(
    ("aten.empty_permuted.default", "aten.empty_strided.default", "aten.new_empty_strided.default"),
    "values are undefined; shape and dtype are checked at conversion",
)
ELSEWHERE |= dict.fromkeys(
    ("prims.convert_element_type.default", "prims.device_put.default", "prims.view_of.default"),
    "tests/models: dynamic GPT-2 and ESM",
)
ELSEWHERE |= dict.fromkeys(
    (
        "aten.fill.Tensor", "aten.hardshrink_backward.default", "aten.replication_pad3d.default",
        "aten.scatter.reduce",
    ),
    "without a sample of their own so far",
)  # fmt: skip

_SAMPLES = 6


def uncovered(entries: Iterable[Entry]) -> set[str]:
    """Names of the lowered overloads whose lowering no traced sample holds, neither for them nor
    for another overload of the same function, and ``ELSEWHERE`` does not explain."""
    from tests.conformance.samples import OPS, programs
    from tests.conformance.together import trace_program
    from torch_max_backend.convert.registry import registry

    reached = set()
    for entry in entries:
        known = [d for d in entry.dtypes if d in OPS[entry.name].dtypes]
        for dtype in {known[0], torch.bool} & set(known):
            for program in programs(entry.name, dtype, limit=_SAMPLES):
                with contextlib.suppress(Exception):
                    program.trace = trace_program(program)
                    reached |= {registry[t].function for t in program.node_targets() & {*registry}}
    missing = {str(op) for op, lowering in registry.items() if lowering.function not in reached}
    return missing - ELSEWHERE.keys()
