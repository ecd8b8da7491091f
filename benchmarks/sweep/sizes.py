"""What an architecture returns when sizes change from call to call, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.outputs import stirred
from benchmarks.sweep.catalog import model_of
from benchmarks.sweep.inference import compiled, returned, traced, verdict
from torch_max_backend.compat.tracing import pytree

Inputs = Mapping[str, Any]


def sizes(name: str) -> Callable[[], dict[str, Any]]:
    """An architecture that has been called in eager PyTorch with all sizes that it takes.

    Returns:
        What compiles it once, as users do who say nothing of sizes, calls it with one size after
        the other and tells ``sizes`` (how many), ``right``, ``wrong`` (what is, and for which),
        ``ties`` and ``torch`` as ``inference`` does, ``torch`` also where ``aot_eager`` raises too.

    Raises:
        ValueError: Eager PyTorch runs it with one size alone.
    """
    model, inputs = model_of(name)
    stirred(model)
    expected = dict(_taken(model, inputs))
    if len(expected) < 2:
        raise ValueError("eager PyTorch takes one size alone")

    def compare() -> dict[str, Any]:
        function, told = compiled(model, None), {}
        results = {what: _result(function, given) for what, (given, _) in expected.items()}
        for what, (given, right) in expected.items():
            ours = results[what]
            if isinstance(ours, Exception):
                theirs = _result(traced(model, None), given)
                told[what] = {"right": isinstance(theirs, Exception), "wrong": str(ours)[:200]}
                told[what] |= {"torch": told[what]["wrong"]} if told[what]["right"] else {}
            else:
                told[what] = verdict(ours, right, model, given)
        found: dict[str, Any] = {"sizes": len(expected)}
        found["right"] = all(one["right"] for one in told.values())
        for key in ("wrong", "ties", "torch"):
            said = "; ".join(f"{what}: {one[key]}" for what, one in told.items() if one.get(key))
            found |= {key: said} if said or key == "wrong" else {}
        return found

    return compare


def _result(function: Callable[..., Any], inputs: Inputs) -> list[Tensor] | Exception:
    try:
        return returned(function, inputs)
    except (RuntimeError, TypeError, ValueError, LookupError) as e:
        return e


def _taken(model: nn.Module, inputs: Inputs) -> Any:
    """Names of sizes, each with arguments of that size and what eager PyTorch returns for them."""
    for what, given in variants(inputs).items():
        result = _result(model, given)
        if not isinstance(result, Exception):
            yield what, (given, result)


def variants(inputs: Inputs) -> dict[str, Inputs]:
    """Arguments of other sizes, by name: two and three times the batch, texts and sounds that
    are longer and shorter, larger images, and at the end those that were given."""
    found = {"given": inputs, "batch x 2": _batch(inputs, 2), "batch x 3": _batch(inputs, 3)}
    for key, what, more in (("input_ids", "text", 5), ("input_values", "sound", 640)):
        given = inputs.get(key)
        if isinstance(given, Tensor) and given.ndim == 2:
            found[f"longer {what}"] = _lengthened(inputs, given.shape[1], more)
            found[f"shorter {what}"] = _lengthened(inputs, given.shape[1], -more // 2)
    if any(map(_is_image, pytree.tree_leaves(inputs))):
        for more in (32, 64):
            found[f"image + {more}"] = pytree.tree_map_only(Tensor, _larger(more), inputs)
    return found | {"given again": inputs}


def _batch(inputs: Inputs, times: int) -> Inputs:
    def repeated(x: Tensor) -> Tensor:
        if x.ndim == 0:
            return x
        return torch.cat([x, *(x.roll(i, -1) for i in range(1, times))])

    return pytree.tree_map_only(Tensor, repeated, inputs)


def _lengthened(inputs: Inputs, length: int, more: int) -> Inputs:
    def other(x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != length:
            return x
        return x[:, :more] if more < 0 else torch.cat([x, x[:, :more]], 1)

    return pytree.tree_map_only(Tensor, other, inputs)


def _is_image(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim == 4 and x.is_floating_point()


def _larger(more: int) -> Callable[[Tensor], Tensor]:
    def larger(x: Tensor) -> Tensor:
        if not _is_image(x):
            return x
        height, width = x.shape[2:]
        return nn.functional.interpolate(x, (height + more, width + 2 * more))

    return larger
