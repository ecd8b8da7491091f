"""Which lowerings the conformance tables do not reach."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

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
ELSEWHERE["torch_max_backend.fft_c2c_real.default"] = "tests/ops/test_fft.py"
ELSEWHERE["torch_max_backend.cumprod_backward.default"] = "tests/ops/test_scan.py"
ELSEWHERE["aten._scaled_dot_product_flash_attention_for_cpu_backward.default"] = (
    "tests/ops/test_gradients.py"
)
ELSEWHERE |= dict.fromkeys(
    (
        "aten.histogram.bin_ct", "aten.histogram.bins_tensor",
        "aten._histogramdd_from_bin_tensors.default",
    ),
    "tests/ops/test_selection.py",
)  # fmt: skip
ELSEWHERE |= dict.fromkeys(
    ("aten.repeat_interleave.Tensor", "aten.reshape.default", "aten.unique_dim.default"),
    "tests/ops/test_data_sizes.py",
)
ELSEWHERE |= dict.fromkeys(
    (
        "aten._grouped_mm.default", "aten.mkldnn_rnn_layer.default",
        "transformers.grouped_mm_fallback.default",
    ),
    "tests/ops/test_layers.py",
)  # fmt: skip
ELSEWHERE |= dict.fromkeys(
    (
        "torch_max_backend.gru_steps.default", "torch_max_backend.gru_steps_backward.default",
        "torch_max_backend.lstm_steps.default", "torch_max_backend.lstm_steps_backward.default",
    ),
    "tests/training/test_recurrent.py",
)  # fmt: skip
ELSEWHERE |= dict.fromkeys(
    ("torch_max_backend.fused_addmm.default", "torch_max_backend.fused_convolution.default"),
    "tests/gemm_providers/test_products.py",
)
ELSEWHERE |= dict.fromkeys(
    (
        "aten.bernoulli.Tensor", "aten.bernoulli.default", "aten.bernoulli.p",
        "aten.binomial.default", "aten.cauchy.default", "aten.exponential.default",
        "aten.geometric.default", "aten.log_normal.default", "aten.multinomial.default",
        "aten.native_dropout.default", "aten.normal.Tensor_Tensor", "aten.normal.Tensor_float",
        "aten.normal.float_Tensor", "aten.normal.float_float", "aten.normal_functional.default",
        "aten.poisson.default", "aten.rand.default", "aten.rand.generator",
        "aten.rand_like.default", "aten.rand_like.generator", "aten.randint.default",
        "aten.randint.generator", "aten.randint.low", "aten.randint.low_generator",
        "aten.randint_like.Tensor", "aten.randint_like.Tensor_generator",
        "aten.randint_like.default", "aten.randint_like.generator", "aten.randint_like.low_dtype",
        "aten.randint_like.low_generator_dtype", "aten.randn.default", "aten.randn.generator",
        "aten.randn_like.default", "aten.randn_like.generator", "aten.randperm.default",
        "aten.randperm.generator", "aten.rrelu_with_noise_functional.default",
        "aten.uniform.default",
    ),
    "tests/ops/test_random.py",
)  # fmt: skip

ELSEWHERE["aten.native_layer_norm_backward.default"] = "tests/ops/test_gradients.py"
# torch cannot trace it with symbolic sizes.
ELSEWHERE["aten.geqrf.default"] = "tests/ops/test_linalg.py"
ELSEWHERE |= dict.fromkeys(
    (
        "aten.upsample_nearest1d_backward.default", "aten.upsample_nearest2d_backward.default",
        "aten.upsample_nearest3d_backward.default",
        "aten._upsample_nearest_exact1d_backward.default",
        "aten._upsample_nearest_exact2d_backward.default",
        "aten._upsample_nearest_exact3d_backward.default",
        "aten.upsample_linear1d_backward.default", "aten.upsample_bilinear2d_backward.default",
        "aten.upsample_bicubic2d_backward.default", "aten.upsample_trilinear3d_backward.default",
        "aten._upsample_bilinear2d_aa_backward.default",
        "aten._upsample_bicubic2d_aa_backward.default",
        "aten._upsample_lanczos2d_aa_backward.default",
    ),
    "tests/ops/test_resample.py",
)  # fmt: skip
ELSEWHERE |= dict.fromkeys(
    ("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default"),
    "tests/ops/test_grid_sample.py",
)
ELSEWHERE |= dict.fromkeys(
    (
        "aten.max_pool3d_with_indices_backward.default",
        "aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default",
        "aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default",
        "aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default",
        "aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default",
        "aten.fractional_max_pool2d_backward.default",
        "aten.fractional_max_pool3d_backward.default", "aten.col2im.default",
    ),
    "tests/ops/test_unpooling.py",
)  # fmt: skip

ELSEWHERE |= dict.fromkeys(
    ("aten._cholesky_solve_helper.default", "aten.cholesky_solve.default"),
    "one function; the samples of cholesky_solve trace one of the two",
)

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
ELSEWHERE["aten._masked_softmax.default"] = "tests/ops/test_internal.py"
ELSEWHERE["aten._is_all_true.default"] = "tests/ops/test_internal.py"
ELSEWHERE["aten._is_any_true.default"] = "tests/ops/test_internal.py"
ELSEWHERE["aten._addmm_activation.default"] = "tests/ops/test_internal.py"

_SAMPLES = 6


def uncovered(entries: Iterable[Entry]) -> set[str]:
    """Names of the lowered overloads whose lowering no traced sample holds, neither for them nor
    for another overload of the same function, and ``ELSEWHERE`` does not explain."""
    from torch_max_backend.registry.lowerings import registry

    wanted: dict[Any, set[str]] = {}
    for op, lowering in registry.items():
        if str(op) not in ELSEWHERE:
            wanted.setdefault(lowering.function, set()).add(str(op))
    missing = set(wanted)
    rows = [(entry, dtype) for entry in entries for dtype in _dtypes(entry)]
    # One sample holds nearly all; only what is left is worth more, first of rows of that name.
    for entry, dtype in rows:
        missing -= _reached(entry, dtype, 1)
    left = {name for function in missing for name in wanted[function]}
    rows.sort(key=lambda row: not any(row[0].name.split(".")[-1] in name for name in left))
    for entry, dtype in rows:
        if missing:
            missing -= _reached(entry, dtype, _SAMPLES)
    return {name for function in missing for name in wanted[function]}


def _dtypes(entry: Entry) -> set[torch.dtype]:
    from tests.conformance.samples import OPS

    known = [d for d in entry.dtypes if d in OPS[entry.name].dtypes]
    return {known[0], torch.bool} & set(known)


def _reached(entry: Entry, dtype: torch.dtype, samples: int) -> set[Any]:
    """The lowerings of the operators in the traces of a row."""
    from tests.conformance.program import trace_program
    from tests.conformance.samples import programs
    from torch_max_backend.registry.lowerings import registry

    reached = set()
    for program in programs(entry.name, dtype, limit=samples):
        with contextlib.suppress(Exception):
            program.trace = trace_program(program)
            reached |= {registry[t].function for t in program.node_targets() & {*registry}}
    return reached
