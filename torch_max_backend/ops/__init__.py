"""The lowerings, one file a family. Importing this package registers them all."""

import importlib
import pkgutil
from functools import partial

from torch_max_backend.registry.lowerings import registry

for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")
registry.later("torchvision", partial(importlib.import_module, f"{__name__}.torchvision.detection"))
