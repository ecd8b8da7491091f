"""Linear layers of one argument as one matrix product: queries, keys and values of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from torch_max_backend.errors import PatchError


class packed:
    """How ``patch`` computes linear layers that are given the same tensor: as one product.

    The layers' weights are joined once, and again after they were written to; that costs their
    memory a second time. What the layers return are parts of one tensor, so not contiguous. With
    gradients, or arguments that are not the same tensor, each layer computes its own.

    Args:
        names: The layers, as the attributes of the module that the key of ``patch`` means:
            ``patch(model, {Attention: packed("q_proj", "k_proj", "v_proj")})``.
    """

    traced_as_it_was = True

    def __init__(self, *names: str) -> None:
        self._names = names

    def forwards(self, module: nn.Module) -> Mapping[nn.Module, Callable[..., Any]]:
        """The forwards of the layers.

        Raises:
            PatchError: Fewer than two names; or one is no ``nn.Linear`` of the module; or the
                layers differ in what they take: the number of features, dtype, device.
        """
        layers: list[Any] = [getattr(module, name, None) for name in self._names]
        linear: list[nn.Linear] = [m for m in layers if type(m) is nn.Linear]
        kinds = {(m.in_features, m.weight.dtype, m.weight.device) for m in linear}
        if len(linear) < 2 or len(linear) < len(layers) or len(kinds) > 1:
            found = ", ".join(f"{n}: {m}" for n, m in zip(self._names, layers, strict=True))
            raise PatchError(
                f"packed() takes two or more nn.Linear layers that take the same; a "
                f"{type(module).__name__} has {found or 'been given no names'}."
            )
        pack = _Pack(linear)
        return {m: pack.forward(i) for i, m in enumerate(linear)}


class _Pack:
    """Layers whose products are one.

    Attributes:
        _joined: Their weights and biases as one, with what tells that these were written to.
        _results: The last argument, as the tensor and its version, and the results for it that no
            layer has taken yet.
    """

    def __init__(self, layers: list[nn.Linear]) -> None:
        self._layers = layers
        self._sizes = [m.out_features for m in layers]
        self._joined: tuple[Any, Any, Any] | None = None
        self._results: tuple[Any, int, dict[int, Any]] | None = None

    def forward(self, index: int) -> Callable[..., Any]:
        """The forward of a layer."""

        def call(module: nn.Linear, x: torch.Tensor) -> torch.Tensor:
            # A copy of a patched module shares this function, and has weights of its own.
            if module is not self._layers[index] or torch.is_grad_enabled() or not _plain(x):
                return nn.functional.linear(x, module.weight, module.bias)
            held = self._results
            if held is None or held[0] is not x or held[1] != x._version or index not in held[2]:
                weight, bias = self._weights()
                parts = nn.functional.linear(x, weight, bias).split(self._sizes, -1)
                held = self._results = (x, x._version, dict(enumerate(parts)))
            result = held[2].pop(index)
            if not held[2]:
                self._results = None
            return result

        return call

    def _weights(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        tensors = [t for m in self._layers for t in (m.weight, m.bias)]
        state = [t if t is None else (t.data_ptr(), t._version, t.dtype) for t in tensors]
        joined = self._joined
        if joined is None or joined[0] != state:
            biases = [m.bias for m in self._layers]
            bias = None
            if any(b is not None for b in biases):
                ours = [
                    m.weight.new_zeros(m.out_features) if m.bias is None else m.bias
                    for m in self._layers
                ]
                bias = torch.cat(ours).detach()
            weight = torch.cat([m.weight for m in self._layers]).detach()
            joined = self._joined = (state, weight, bias)
        return joined[1], joined[2]


def _plain(x: torch.Tensor) -> bool:
    # An inference tensor has no version: nobody could tell that it was written to.
    return type(x) is torch.Tensor and not x.is_inference()
