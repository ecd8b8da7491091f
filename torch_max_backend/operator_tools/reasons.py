"""Why an ATen operator is neither lowered nor decomposed, as far as its name and schema tell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_max_backend.compat.operators import OpOverload, has_kernel

if TYPE_CHECKING:
    from torch_max_backend.operator_tools.coverage import Fate


@dataclass(frozen=True)
class Reason:
    """Attributes:
    title: A few words, as a heading.
    text: One or two sentences.
    """

    title: str
    text: str


MISSING = Reason(
    "No lowering yet",
    "Nothing is known to be in the way. They run in eager PyTorch until someone writes a lowering.",
)
_NUMBER = Reason(
    "Results that are no tensors",
    "A Python number, bool or string. Where it depends on data, Dynamo breaks the graph before the "
    "backend is asked; where it does not, it is known when the graph is traced.",
)
_FACTORY = Reason(
    "Computed when the graph is compiled",
    "They take no tensor, so their results are constants, which torch computes.",
)
_DEVICE = Reason(
    "Kernels of one library or device",
    "Torch calls them where it has chosen that library (cuDNN, MIOpen, oneDNN, ...), or has no "
    "kernel of them for CPUs. Models reach them through operators that are lowered.",
)
# The first whose pattern is found in the operator's name.
_BY_NAME = (
    (
        r"^_?(test|foobar|fw_primal|make_dual|make_dep_token|print|philox_key)|_jvp$",
        Reason("Internal to torch", "For torch's own tests, forward-mode AD and debugging."),
    ),
    (
        r"sparse|_co[ol]|coalesce|[cr]ow_indices|col_indices|csr|csc|cslt|nnz|_dim[IV]|dense_dim|"
        r"spdiags|spsolve|hspmm|to_dense|^_?(indices|values)(_copy)?$",
        Reason("Sparse tensors", "MAX has no sparse tensors; `.to_dense()` before the graph."),
    ),
    (
        r"nested|jagged|padded_(dense|tensor)",
        Reason("Nested tensors", "MAX has no nested tensors; pad them before the graph."),
    ),
    (
        r"quant|^q_|qscheme|int_repr|moving_avg_obs",
        Reason(
            "Quantized tensors",
            "Those of torch.quantization, and its fake quantization. Weights of 8 and 4 bits are "
            "[another matter](quantization.md).",
        ),
    ),
    (
        r"cudnn|miopen|mps|mkldnn|nnpack|triton|overrideable|efficient|^_flash|product_(cudnn|flash)"
        r"|^batch_norm_(?!backward$)|_add_relu|thnn|slow_conv|conv_depthwise|_dropout_mask|mixed_dtypes|"
        r"_lstm|_for_mps|_cpu_fallback|int4pack|_native_multi_head|_transform_bias|_scaled_.*mm",
        _DEVICE,
    ),
    (
        r"^_?fused_(ada|sgd)|^_?amp_",
        Reason(
            "Fused optimizers and gradient scaling",
            "Optimizers with `fused=True` and the scaler of AMP. With `foreach=True`, the default, "
            "[optimizers are compiled](training.md).",
        ),
    ),
    (
        r"assert|sym_constrain|is_(all|any)_true",
        Reason(
            "Assertions",
            "Conditions on sizes are checked when a graph is called, those on data that are "
            "`_assert_async` when it runs. Others on data run in eager PyTorch.",
        ),
    ),
    (
        r"dirichlet|gamma|philox|^random|fused_dropout|rrelu",
        Reason("Random numbers", "Distributions without a kernel, and generators of other keys."),
    ),
    (
        r"set$|set_$|_copy$|copy_from|resize|lazy_clone|pin_memory|record_stream|"
        r"shallow_copy|slice_inverse|alias|storage|_like$|meta$",
        Reason(
            "Memory that a functional graph does not have",
            "Torch replaces most of them, and the copying namesakes of views, before a graph is "
            "compiled. The rest change where a tensor lies.",
        ),
    ),
    (
        r"_helper$|_impl$|^_(logcumsumexp|compute_linear|convolution|stack|aminmax|addmm_act)|powsum|"
        r"batch_norm|native_norm|^(matmul|linear|max_pool2d|adaptive_avg_pool3d)_backward$",
        Reason(
            "Parts of other operators",
            "Torch calls them within other operators, or keeps them for old programs. Models reach "
            "them through operators that are lowered or decomposed.",
        ),
    ),
)


def reason(op: OpOverload) -> Reason:
    """Why an overload that is refused has no lowering."""
    name = op._schema.name.partition("::")[2]
    for pattern, found in _BY_NAME:
        if re.search(pattern, name):
            return found
    returns = [str(r.type) for r in op._schema.returns]
    if returns and not any("Tensor" in kind for kind in returns):
        return _NUMBER
    if not any("Tensor" in str(a.type) for a in op._schema.arguments):
        return _FACTORY
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    on_cpu = any(has_kernel(op, k) for k in keys)
    return MISSING if on_cpu else _DEVICE


def missing_by_reason(fates: Iterable[Fate]) -> dict[Reason, list[str]]:
    """The operators that are refused, by reason: names where no overload works, and names with the
    overload where others do. In-place and ``out=`` overloads are as their functional namesakes."""
    fates = list(fates)
    working = {f.base for f in fates if f.outcome in ("lowered", "decomposed")}
    functional = {f.base for f in fates if not f.op._schema.is_mutable}
    found: dict[Reason, set[str]] = {MISSING: set()}
    for fate in fates:
        base, written = fate.base, fate.op._schema.is_mutable
        namesake = re.sub(r"^__i(?!n)", "__", base).removesuffix("_" * (base[-2:] != "__"))
        if fate.outcome != "refused" or (written and namesake in functional):
            continue
        name = f"{base}.{fate.op._overloadname}" if base in working else base
        found.setdefault(reason(fate.op), set()).add(name)
    return {why: sorted(names) for why, names in found.items() if names}


def missing_section(fates: Iterable[Fate]) -> list[str]:
    """The lines of the page of operators that list what is missing."""
    grouped = missing_by_reason(fates)
    total = sum(map(len, grouped.values()))
    lines = [
        "## Missing",
        "",
        f"{total} ATen operators, or overloads where others of the operator work, are neither "
        "lowered nor decomposed; most never reach a graph. What does "
        "[runs in eager PyTorch](fallback.md). In-place and `out=` overloads are as their "
        "functional namesakes. Grouped by their names and schemas:",
    ]
    for why, names in grouped.items():
        lines += ["", f"### {why.title}", "", why.text, "", ", ".join(f"`{n}`" for n in names)]
    return lines
