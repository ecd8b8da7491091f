"""Many architectures with random weights and small sizes, and how well the backend takes each.

``python -m torch_max_backend.bench.matrix --help`` runs them. The libraries that define the models
(transformers, timm, torchvision, diffusers) are imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch_max_backend.bench.matrix.decoders import DECODERS, EXPERTS, RECURRENT
from torch_max_backend.bench.matrix.encoders import ENCODER_DECODERS, ENCODERS
from torch_max_backend.bench.matrix.libraries import DIFFUSERS, TIMM, TORCHVISION
from torch_max_backend.bench.matrix.plain import PLAIN
from torch_max_backend.bench.matrix.senses import AUDIO, MULTIMODAL, VISION
from torch_max_backend.bench.models import ModelCase

CASES: Mapping[str, ModelCase] = {
    case.name: case
    for case in (
        *DECODERS, *EXPERTS, *RECURRENT, *ENCODERS, *ENCODER_DECODERS, *VISION, *AUDIO,
        *MULTIMODAL, *TIMM, *TORCHVISION, *DIFFUSERS, *PLAIN,
    )
}  # fmt: skip
