"""Kernels and programs that most models need, built before one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch_max_backend.cache import kernel_libraries
from torch_max_backend.cache.kernel_libraries import Manifest
from torch_max_backend.engines.steps.families import family_of, key_of, text_key
from torch_max_backend.engines.steps.libraries import provide
from torch_max_backend.engines.steps.program_libraries import common
from torch_max_backend.engines.steps.runner import RUN
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.engines.steps.signatures import Signature, signature

# An instance takes about 1 CPU s.
_STANDARD: Sequence[tuple[str, Mapping[str, str | bool | int]]] = [
    ("tmb_matmul", {}),
    ("tmb_attention", {}),
    ("tmb_normalize", {}),
    ("tmb_softmax", {"logarithm": False, "blind": False}),
    ("tmb_lookup", {}),
    ("tmb_checked", {}),
    ("tmb_assert", {}),
]
# What the names of dtypes in their signatures stand for.
_OPEN = {
    "dtype": "float32",
    "right_type": "float32",
    "value_type": "float32",
    "index_dtype": "int64",
}


def standard() -> list[Instance]:
    """The kernels that most models need."""
    return [_float32(*each) for each in _STANDARD]


def build_standard() -> list[Manifest]:
    """Build what most models need, where it is missing; returns the libraries of this machine that
    have it.

    Raises:
        LibraryError: One could not be built or loaded.
    """
    instances, texts = standard(), [RUN, common().text()]
    provide(instances, texts)
    families = dict.fromkeys(map(family_of, instances))
    keys = [(family.name, key_of(family)) for family in families]
    keys += [(text.name, text_key(text.text, text.modules)) for text in texts]
    return [manifest for name, key in keys for manifest in kernel_libraries.kept(name, key)]


def _float32(kernel: str, parameters: Mapping[str, str | bool | int]) -> Instance:
    """The instance of a kernel for float32 where its signature leaves the dtype open."""
    of = signature(kernel)
    operands = []
    for argument in of.arguments if isinstance(of, Signature) else ():
        dtype = _OPEN.get(argument.dtype, argument.dtype.removeprefix("DType."))
        operands.append((dtype, int(argument.rank or 0)))
    return Instance.of(kernel, parameters, operands)
