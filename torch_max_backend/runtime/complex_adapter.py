"""Complex arguments and results of a model that knows only pairs of real numbers."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import torch

from torch_max_backend.graph.signature_schema import Signature

Function = Callable[[list[Any]], list[Any]]


def with_pairs(function: Function, signature: Signature) -> Function:
    """``function``, which takes and returns pairs, for complex tensors; itself if there are none.

    Args:
        function: Called with one list of arguments, as the traced graph.
        signature: How it is called.
    """
    if not signature.pairs and not signature.pair_outputs:
        return function
    return _Paired(function, signature)


class _Paired:
    _boxed_call = True

    def __init__(self, function: Function, signature: Signature) -> None:
        self._function = function
        self._arguments = tuple(signature.pairs)
        self._results = tuple(signature.pair_outputs)
        written = {i.index for i in signature.inputs if i.mutated}
        written |= {index for index, _ in signature.copy_back}
        self._written = written & set(signature.pairs)
        # Results that are arguments themselves.
        self._given = {k: o.index for k, o in enumerate(signature.outputs) if o.kind == "input"}

    @property
    def direct(self) -> Function | None:
        """The same of what may be called instead of the function, if that is known."""
        function = getattr(self._function, "direct", None)
        if function is None:
            return None
        made = copy(self)
        made._function = function
        return made

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = {i: arguments[i] for i in self._arguments}
        for i, tensor in given.items():
            arguments[i] = torch.view_as_real(tensor.detach().resolve_conj().resolve_neg())
        written = [(given[i], arguments[i]) for i in self._written]
        try:
            results = self._function(arguments)
        except Exception:
            for i, tensor in given.items():
                arguments[i] = tensor  # for whoever takes over
            raise
        for tensor, pairs in written:
            if tensor.is_conj() or tensor.is_neg():
                tensor.copy_(torch.view_as_complex(pairs))
        for k in self._results:
            index = self._given.get(k, -1)
            results[k] = given[index] if index in given else torch.view_as_complex(results[k])
        return results
