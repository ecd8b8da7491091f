"""Operators of torch's backward graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten

MASK = torch.tensor([[True, False, True, True, False], [False, True, True, False, False]])
BAGS = (torch.tensor([1, 2, 2, 5, 6, 1]), torch.tensor([0, 2, 2, 5]))
CLASSES = torch.tensor([0, 2, 4, 1])
LABELS = torch.tensor([[3, 0, -1, 1, 1], [-1, 2, 2, 2, 2], [0, 1, 2, 3, 4], [2, -1, 0, 0, 0]])


def _attention(**settings: Any) -> Any:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **settings)


def _bag(**settings: Any) -> Any:
    return lambda w: F.embedding_bag(BAGS[0], w, BAGS[1], **settings)


def _segments(**settings: Any) -> Any:
    def every(x: torch.Tensor) -> torch.Tensor:
        kinds = ("sum", "mean", "prod", "max", "min")
        found = [torch.segment_reduce(x, k, **settings) for k in kinds]
        return torch.stack([f.nan_to_num(0, 0, 0) for f in found])

    return every


def _by_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of ``[batch, rows, heads, width]``, as a model has them."""
    heads = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)


# Well conditioned, and not symmetric.
SQUARES = torch.arange(32.0).sin().reshape(2, 4, 4) + 3 * torch.eye(4)
HEADS = [(2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)]
# More queries and keys than a tile of the kernel has, of one item and head and of several.
LONG = [(1, 2, 150, 8), (1, 2, 270, 8), (1, 2, 270, 8)]
ALONE = [(1, 3, 270, 17), (1, 1, 290, 17), (1, 1, 290, 17)]
# Forbids the second query everything.
BLIND = torch.tensor([[1, 1, 0, 1, 1, 0], [0] * 6, *[[0, 1, 1, 1, 1, 0]] * 3]) > 0
DOUBLES = [torch.randn(2, 3, n, 20, dtype=torch.float64).sin() for n in (140, 131, 131)]
HALVES = [torch.randn(2, 3, n, 16).sin().bfloat16() for n in (20, 24, 24)]
# Functions of tensors of these shapes, or of these tensors, all of which get a gradient.
FUNCTIONS: dict[
    str, tuple[Callable[..., torch.Tensor], Sequence[tuple[int, ...] | torch.Tensor]]
] = {
    "attention": (_attention(), HEADS),
    "attention causal": (_attention(is_causal=True), [(2, 4, 6, 8)] * 3),
    "attention scaled": (_attention(scale=0.3), HEADS),
    "attention masked": (_attention(attn_mask=torch.arange(30).view(5, 6) % 3 > 0), HEADS),
    "attention grouped": (_attention(enable_gqa=True), [(2, 4, 5, 8), *[(2, 2, 6, 8)] * 2]),
    "attention of more keys": (_attention(), LONG),
    "attention of more queries": (_attention(is_causal=True), [LONG[1], LONG[0], LONG[0]]),
    "attention causal tiles": (_attention(is_causal=True), [(2, 2, 270, 8)] * 3),
    "attention by rows": (_by_rows, [(2, 140, 3, 16)] * 3),
    "attention by rows of few": (_by_rows, [(2, 3, 4, 16)] * 3),
    "attention of one key head": (_attention(is_causal=True, enable_gqa=True), ALONE),
    "attention of one key head masked": (
        _attention(attn_mask=torch.arange(270.0)[:, None] % 7 * torch.ones(290), enable_gqa=True),
        ALONE,
    ),
    "attention masked by keys": (_attention(attn_mask=torch.arange(6.0)[None].sin()), HEADS),
    "attention masked by queries": (
        _attention(attn_mask=torch.arange(20.0).view(1, 4, 5, 1).sin()),
        HEADS,
    ),
    "attention masked by items": (
        _attention(attn_mask=torch.arange(12).view(2, 1, 1, 6) % 5 > 0),
        HEADS,
    ),
    "attention masked each": (
        _attention(attn_mask=torch.arange(240.0).view(2, 4, 5, 6).sin()),
        HEADS,
    ),
    "attention blind": (_attention(attn_mask=BLIND), HEADS),
    "attention blind again": (_attention(attn_mask=BLIND), HEADS),
    "attention double": (_attention(is_causal=True), DOUBLES),
    "attention half": (_attention(), HALVES),
    **{
        f"cdist {p}": (partial(torch.cdist, p=p), [(2, 5, 3), (4, 3)])
        for p in (0.0, 1.0, 1.5, 2.0, float("inf"))
    },
    "pdist": (F.pdist, [(6, 3)]),
    "pdist 1.5": (lambda x: F.pdist(x.round(), 1.5), [(9, 2)]),
    "bag sum": (_bag(mode="sum", padding_idx=2), [(7, 3)]),
    "bag mean": (_bag(mode="mean", scale_grad_by_freq=True), [(7, 3)]),
    "bag max": (_bag(mode="max"), [(7, 3)]),
    "bag weighted": (
        lambda w, s: F.embedding_bag(*BAGS[:1], w, BAGS[1], mode="sum", per_sample_weights=s),
        [(7, 3), (6,)],
    ),
    "margin": (lambda x: F.multi_margin_loss(x, CLASSES, margin=0.7), [(4, 5)]),
    "margin squared": (lambda x: F.multi_margin_loss(x, CLASSES, p=2, reduction="none"), [(4, 5)]),
    "margin of labels": (lambda x: F.multilabel_margin_loss(x, LABELS), [(4, 5)]),
    "replicated line": (lambda x: F.pad(x, (2, 1), mode="replicate"), [(2, 3, 5)]),
    "replicated": (lambda x: F.pad(x, (2, -1, 0, 3), mode="replicate"), [(2, 3, 5, 4)]),
    "replicated volume": (
        lambda x: F.pad(x, (2, 1, 0, 3, 1, 1), mode="replicate"),
        [(1, 2, 3, 4, 3)],
    ),
    "segments by lengths": (_segments(lengths=torch.tensor([3, 0, 2]), unsafe=True), [(6, 3)]),
    "segments by offsets": (_segments(offsets=torch.tensor([1, 3, 3, 5]), initial=2), [(7, 2)]),
    "segments of rows": (
        _segments(lengths=torch.tensor([[2, 2, 1], [4, 1, 0]]), axis=1),
        [torch.tensor([[0.0, 1, 2, 2, 0], [0, 0, 3, 3, -1]])],
    ),
    "sgn": (torch.sgn, [(5,)]),
    "solve": (torch.linalg.solve, [SQUARES[0], (4, 3)]),
    "solve transposed": (lambda a, b: torch.linalg.solve(a.mT, b), [SQUARES, (2, 4)]),
    "determinants": (
        lambda a: torch.stack([a.det(), a.mT.det(), *torch.linalg.slogdet(a)]),
        [SQUARES[1]],
    ),
    "softshrink": (F.softshrink, [(40,)]),
    "masked scatter": (lambda x, s: x.masked_scatter(MASK, s), [(2, 5), (7,)]),
    "weight norm": (lambda v, g: torch._weight_norm(v, g, 0), [(3, 4, 5), (3, 1, 1)]),
    "weight norm last": (lambda v, g: torch._weight_norm(v, g, 2), [(3, 4, 5), (1, 1, 5)]),
}

# Input, weight, stride, padding, dilation, transposed, output padding, groups.
CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 4, 9, 8), (6, 4, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "strided": ((2, 4, 9, 8), (6, 4, 3, 2), [2, 3], [1, 0], [1, 2], False, [0, 0], 1),
    "grouped": ((2, 4, 9, 8), (6, 2, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 2),
    "depthwise": ((2, 4, 9, 8), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    "transposed": ((2, 4, 5, 6), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    "transposed grouped": ((2, 4, 5, 6), (4, 3, 2, 2), [2, 1], [0, 1], [1, 1], True, [0, 0], 2),
    "line": ((2, 4, 11), (6, 4, 3), [2], [1], [1], False, [0], 1),
    "volume": ((1, 2, 4, 5, 6), (4, 2, 2, 2, 2), [1, 2, 1], [0, 1, 0], [1] * 3, False, [0] * 3, 1),
}

BOTH, ALL = (True, True), (True, True, True)
HALF, SINGLE, DOUBLE = torch.bfloat16, torch.float32, torch.float64
# Rows, columns, weight and bias, wanted gradients, dtypes of the rows and of the weights, mean.
LAYER_NORMS: dict[str, tuple[Any, ...]] = {
    "affine": ((5, 7), (37,), BOTH, ALL, SINGLE, SINGLE, 0),
    "affine dynamic": ((5, 7), (37,), BOTH, ALL, SINGLE, SINGLE, 0),
    "without affine": ((5, 7), (37,), (False, False), (True, False, False), SINGLE, SINGLE, 0),
    "without bias": ((5, 7), (37,), (True, False), (True, True, False), SINGLE, SINGLE, 0),
    "frozen": ((5, 7), (37,), BOTH, (True, False, False), SINGLE, SINGLE, 0),
    "of parameters alone": ((5, 7), (37,), BOTH, (False, True, True), SINGLE, SINGLE, 0),
    "of bias alone": ((5, 7), (37,), (False, True), (False, False, True), SINGLE, SINGLE, 0),
    "two dimensions": ((3, 5), (6, 7), BOTH, ALL, SINGLE, SINGLE, 0),
    "one row": ((), (50,), BOTH, ALL, SINGLE, SINGLE, 0),
    "many rows dynamic": ((3000,), (70,), BOTH, ALL, SINGLE, SINGLE, 1000),
    "long rows": ((3,), (20011,), BOTH, ALL, SINGLE, SINGLE, 0),
    "float64 dynamic": ((9, 5), (37,), BOTH, ALL, DOUBLE, DOUBLE, 0),
    "bfloat16": ((9, 5), (37,), BOTH, ALL, HALF, HALF, 0),
    "bfloat16 dynamic": ((9, 5), (37,), BOTH, ALL, HALF, SINGLE, 0),
    "no rows": ((0, 5), (37,), BOTH, ALL, SINGLE, SINGLE, 0),
    "no columns": ((5,), (0,), BOTH, ALL, SINGLE, SINGLE, 0),
}


def _gradients(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> Any:
    """Those of a curved function of the result."""
    given = [t.detach().requires_grad_() for t in tensors]
    with torch.enable_grad():
        return torch.autograd.grad(function(*given).cos().sum(), given)


# With --all-samples only: each is two large kernels, much like those of another case.
THOROUGH = {
    "attention scaled", "attention of more queries", "attention by rows of few",
    "attention masked by queries", "attention masked each", "attention blind again",
    "attention masked", "cdist 0.0", "cdist 1.0", "replicated line",
    "strided", "depthwise", "transposed", "line",
}  # fmt: skip


@cache
def _programs(full: bool) -> dict[str, Program]:
    from tests.conformance.together import by_turns

    torch.manual_seed(0)
    cases: dict[str, Any] = {}
    for name, (of, given) in FUNCTIONS.items():
        cases[name] = (
            partial(_gradients, of),
            [x if isinstance(x, torch.Tensor) else torch.randn(x) for x in given],
        )
    for name, (input_size, weight_size, *settings, groups) in CONVOLUTIONS.items():
        x, w = torch.randn(input_size), torch.randn(weight_size)
        grad = torch.randn_like(aten.convolution(x, w, None, *settings, groups))
        channels = [grad.shape[1]]

        def function(
            grad: torch.Tensor,
            x: torch.Tensor,
            w: torch.Tensor = w,  # as a parameter's, its sizes are never symbolic
            settings: list[Any] = [*settings, groups],  # noqa: B006
            channels: list[int] = channels,
        ) -> Any:
            return aten.convolution_backward(grad, x, w, channels, *settings, [True] * 3)

        cases[name] = (function, [grad, x])
    return by_turns({n: case for n, case in cases.items() if full or n not in THOROUGH})


def _layer_norm(
    kept: tuple[int, ...],
    normalized: tuple[int, ...],
    given: tuple[bool, bool],
    mask: tuple[bool, bool, bool],
    dtype: torch.dtype,
    weights: torch.dtype,
    mean: float,
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    x = torch.randn(kept + normalized).add(mean).to(dtype)
    axes = list(range(len(kept), x.dim()))
    center = x.double().mean(axes, keepdim=True)
    spread = (x.double() - center).square().mean(axes, keepdim=True)
    statistics = [v.to(weights) for v in (center, (spread + 1e-5).rsqrt())]
    parameters = [torch.rand(normalized).add(0.5).to(weights) for _ in range(2)]

    def function(
        grad: torch.Tensor,
        x: torch.Tensor,
        mean: torch.Tensor,
        rstd: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> Any:
        weight, bias = (p if g else None for p, g in zip(parameters, given, strict=True))
        sizes = x.shape[len(kept) :]
        # What computes the gradient becomes a part of the kernel.
        grad = grad * 2 + 1
        results = aten.native_layer_norm_backward(
            grad, x, sizes, mean, rstd, weight, bias, list(mask)
        )
        # Eager returns something for what is not wanted, too.
        return [r for r, wanted in zip(results, mask, strict=True) if wanted]

    return function, [torch.randn(x.shape).to(dtype), x, *statistics, *parameters]


@cache
def _layer_norms() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    torch.manual_seed(0)
    programs = {
        name: Program(name, *_layer_norm(*settings), dynamic=name.endswith("dynamic"))
        for name, settings in LAYER_NORMS.items()
    }
    compile_together(list(programs.values()))
    return programs


@compile_group("gradients", weight=6)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH))
        for name in [*CONVOLUTIONS, *FUNCTIONS]
    ],
)
def test_gradients_are_eagers(name: str, request: pytest.FixtureRequest) -> None:
    from tests.conformance.reference import complaint

    program = _programs(request.config.getoption("--all-samples"))[name]
    if program.tensors[0].dtype == HALF:
        assert complaint(program) is None
    else:
        program.assert_agrees()


@compile_group("layer norms", weight=3)
@pytest.mark.parametrize("name", LAYER_NORMS)
def test_gradients_of_layer_norms_are_as_exact_as_eagers(name: str) -> None:
    from tests.conformance.reference import complaint

    program = _layer_norms()[name]
    assert aten.native_layer_norm_backward.default in program.node_targets()
    assert complaint(program) is None
