"""How torch splits a joint graph into what forward keeps and what backward computes again."""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._functorch.partitioners import min_cut_rematerialization_partition

__all__ = ["min_cut_rematerialization_partition"]
