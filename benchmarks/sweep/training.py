"""The gradients of an architecture, compiled, beside eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.outputs import SLACK, floats_as, stirred, tensors
from benchmarks.sweep.catalog import model_of
from benchmarks.sweep.inference import compiled, traced

# How far, beside its size, a gradient may be from float64's. An activation whose argument rounds to
# the other side of a kink changes gradients behind it by so much, in eager PyTorch as well.
KINKS = 0.03
# Beside the largest gradient: what cancels to nothing but rounding.
NOTHING = 1e-7
# Numbers in an input: with more, the gradients in float64 take more memory than machines have.
MOST_INPUT = 2_000_000


def training(name: str) -> Callable[[], dict[str, Any]]:
    """An architecture whose gradients eager PyTorch has computed: of a weighted sum of all that it
    returns, in eval mode but for its batch norms.

    Returns:
        What compiles a copy of it, computes the gradients twice and tells ``right``, ``wrong``
        (the gradients and buffers that are, and how far) and ``torch`` (those, where ``aot_eager``
        computes the same as we do).
    """
    model, inputs = model_of(name)
    stirred(model).eval()
    for module in model.modules():
        # Their backward in training is not that of eval mode.
        module.train(isinstance(module, nn.modules.batchnorm._BatchNorm))
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    if name.startswith(("timm", "torchvision")):
        inputs = {k: _two(v) for k, v in inputs.items()}
    if max((x.numel() for x in tensors(inputs)), default=0) > MOST_INPUT:
        raise ValueError("its input is large")
    expected = _gradients(model, inputs, lambda m: m)

    def compare() -> dict[str, Any]:
        ours = _gradients(model, inputs, compiled)
        wrong = differences(ours, [expected], None)
        if wrong:
            # Another eager PyTorch, which rounds in other places.
            with torch.backends.mkldnn.flags(enabled=False):
                other = _gradients(model, inputs, lambda m: m)
            wrong = differences(ours, [expected, other], _in_float64(model, inputs))
        if not wrong:
            return {"right": True, "wrong": ""}
        theirs = _gradients(model, inputs, traced)
        as_torch = not differences(ours, [theirs], None)
        if not as_torch and theirs.keys() == ours.keys() != expected.keys():
            # Of what nothing depends on it has zeros, and eager PyTorch no gradient.
            zeros = {n: torch.zeros_like(theirs[n]) for n in theirs.keys() - expected.keys()}
            as_torch = not differences(ours, [{**expected, **zeros}], None)
        return {"right": as_torch, "wrong": wrong} | ({"torch": wrong} if as_torch else {})

    return compare


def _two(value: Any) -> Any:
    """An image and its mirror image: eager's gradient of a batch norm is wrong for some batches of
    one, on CPU with torch 2.15."""
    image = isinstance(value, Tensor) and value.ndim == 4
    return torch.cat([value, value.flip(-1)]) if image else value


def _gradients(
    model: nn.Module, inputs: Mapping[str, Any], compile: Callable[[nn.Module], Callable[..., Any]]
) -> dict[str, Tensor]:
    """The gradients of the second of two backward passes of a copy of the model, and its buffers
    after it, by name.

    Args:
        model: The model, which stays as it is.
        inputs: Its arguments.
        compile: What makes of the copy what is called.

    Raises:
        ValueError: The model draws random numbers, or nothing that it returns has a gradient.
    """
    model = copy.deepcopy(model)
    call = compile(model)
    for _ in range(2):
        model.zero_grad()
        torch.manual_seed(1)
        before = torch.get_rng_state()
        results = tensors(call(**inputs))
        if not before.equal(torch.get_rng_state()):
            raise ValueError("it draws random numbers, which are not eager's")
        weighted_sum(results).backward()
    found = {f"gradient of {n}": p.grad for n, p in model.named_parameters()}
    given = {n: g.to_dense() for n, g in found.items() if g is not None}
    return given | {n: b.detach().clone() for n, b in model.named_buffers()}


def weighted_sum(results: list[Tensor]) -> Tensor:
    """A number that depends on all finite floats that have a gradient.

    Raises:
        ValueError: Nothing has one.
    """
    generator = torch.Generator().manual_seed(5)
    sums = []
    for result in results:
        if result.is_floating_point() and result.requires_grad:
            weights = torch.randn(result.shape, generator=generator).to(result.dtype)
            finite = torch.where(result.detach().isfinite(), result, 0.0)
            sums.append((finite * weights).sum() / max(1, result.numel()) ** 0.5)
    if not sums:
        raise ValueError("no result has a gradient")
    return torch.stack([s.double() for s in sums]).sum()


def differences(
    ours: Mapping[str, Tensor],
    eager: Sequence[Mapping[str, Tensor]],
    truth: Mapping[str, Tensor] | None,
) -> str:
    """What is further from the truth (the first eager's, where that does not run in float64) than
    kinks explain and than ``SLACK`` times an eager is, there or, beside the size, in the gradient
    that it has most wrong; the first few, or ""."""
    expected = eager[0]
    if ours.keys() != expected.keys():
        return f"of some there is none: {sorted(ours.keys() ^ expected.keys())[:3]}"
    truth = expected if truth is None or truth.keys() != expected.keys() else truth
    sizes = {n: _distance(t, torch.zeros_like(t)) for n, t in truth.items()}
    largest = max(size for n, size in sizes.items() if "gradient" in n)
    off = {n: max(_distance(one[n], t) for one in eager) for n, t in truth.items()}
    counts = [n for n in truth if "gradient" in n and off[n] > NOTHING * largest]
    most = max((off[n] / sizes[n] for n in counts if sizes[n]), default=0.0)
    wrong = []
    for name, e in expected.items():
        o, t = ours[name], truth[name]
        if (o.shape, o.dtype) != (e.shape, e.dtype):
            wrong.append(f"{name} is {o.dtype}{list(o.shape)}, not {e.dtype}{list(e.shape)}")
            continue
        here, size, theirs = _distance(o, t), sizes[name], off[name]
        allowed = (SLACK * theirs, KINKS * size, NOTHING * largest, SLACK * most * size)
        # Written so that NaN is wrong.
        if not (o.equal(e) or here <= max(allowed)):
            wrong.append(f"{name} is off by {here:.1e} of {size:.1e}, eager by {theirs:.1e}")
    return "; ".join(wrong[:3])


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm())


def _in_float64(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Tensor] | None:
    try:
        return _gradients(model, floats_as(torch.float64, inputs), nn.Module.double)
    except (RuntimeError, TypeError, ValueError):
        return None
