"""What a table takes: arguments, numbers and seeds, by the number of the plan's input."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from torch_max_backend.gemm_providers.choice import routine
from torch_max_backend.graph.signature_schema import ModelInput, Signature
from torch_max_backend.runtime.tensors import plain


@dataclass
class Inputs:
    """The inputs of a plan, by number.

    Attributes:
        fixed: Tensors that are the same at each call.
        static: Arguments whose memory rarely changes: their positions.
        moving: The other arguments.
        scalars: Numbers as data: which number, and its dtype.
        seeds: Of random numbers: the device.
        carriers: Which number a number or a size is.
    """

    fixed: dict[int, torch.Tensor] = field(default_factory=dict)
    static: list[tuple[int, int]] = field(default_factory=list)
    moving: list[tuple[int, ModelInput]] = field(default_factory=list)
    scalars: list[tuple[int, int, str]] = field(default_factory=list)
    seeds: list[tuple[int, str]] = field(default_factory=list)
    carriers: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, signature: Signature, constants: Mapping[str, torch.Tensor], static: Collection[int]
    ) -> Inputs:
        """Those of a signature; the arguments as of ``StepExecutable``."""
        found = cls()
        for k, item in enumerate(signature.inputs):
            if item.kind == "tensor":
                if item.index in static and item.order is None and not item.mutated:
                    found.static.append((k, item.index))
                else:
                    found.moving.append((k, item))
            elif item.kind == "constant":
                found.fixed[k] = plain(constants[item.source].detach())
            elif item.kind == "address":
                found.fixed[k] = torch.tensor(routine(item.source), device="cpu")
            elif item.kind == "seed":
                found.seeds.append((k, item.source))
            else:
                number = len(found.carriers)
                if item.kind == "scalar":
                    found.scalars.append((k, number, item.dtype))
                found.carriers[k] = number
        return found


@dataclass
class Given:
    """The inputs of one call whose memory differs from call to call.

    Attributes:
        count: How many inputs there are so far, with all others.
        static: Where the arguments lie whose memory rarely changes, then the versions of packed
            ones.
        addresses: The number of each that does change, and where it lies.
        held: What has to live until the call ends.
        pending: Arguments that are written to and that have no such memory, with what stands in
            for them.
    """

    count: int
    static: list[int]
    addresses: list[tuple[int, int]] = field(default_factory=list)
    held: list[torch.Tensor] = field(default_factory=list)
    pending: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Add inputs behind all others."""
        for tensor in tensors:
            self.addresses.append((self.count, tensor.data_ptr()))
            self.count += 1
            self.held.append(tensor)
