"""The libraries that nearly every model needs, built before one does."""

from __future__ import annotations

from torch_max_backend.cache import kernel_libraries
from torch_max_backend.cache.kernel_libraries import Manifest
from torch_max_backend.engines.steps.families import key_of, standard, standard_families, text_key
from torch_max_backend.engines.steps.libraries import provide
from torch_max_backend.engines.steps.program_libraries import common
from torch_max_backend.engines.steps.runner import RUN


def build_standard() -> list[Manifest]:
    """Build the standard libraries where they are missing; returns those of this machine.

    Raises:
        LibraryError: One could not be built or loaded.
    """
    families, texts = standard_families(), [RUN, common().text()]
    provide([i for family in families for i in standard(family)], texts)
    keys = [(family.name, key_of(family)) for family in families]
    keys += [(text.name, text_key(text.text, text.modules)) for text in texts]
    return [manifest for name, key in keys for manifest in kernel_libraries.kept(name, key)]
