"""Many architectures with random weights and small sizes, and how well the backend takes each.

``python -m benchmarks.matrix --help`` runs them. The libraries that define the models
(transformers, timm, torchvision, diffusers) are imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.matrix.decoders import DECODERS, EXPERTS, RECURRENT
from benchmarks.matrix.encoders import ENCODER_DECODERS, ENCODERS
from benchmarks.matrix.libraries import DIFFUSERS, TIMM, TORCHVISION
from benchmarks.matrix.plain import PLAIN
from benchmarks.matrix.senses import AUDIO, MULTIMODAL, VISION
from benchmarks.processes.models import ModelCase

CASES: Mapping[str, ModelCase] = {
    case.name: case
    for case in (
        *DECODERS, *EXPERTS, *RECURRENT, *ENCODERS, *ENCODER_DECODERS, *VISION, *AUDIO,
        *MULTIMODAL, *TIMM, *TORCHVISION, *DIFFUSERS, *PLAIN,
    )
}  # fmt: skip
