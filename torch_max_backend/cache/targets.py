"""Machines that artifacts are made for while they are not this one."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from torch_max_backend.errors import OptionError
from torch_max_backend.process.processor import cpu_info

_CUDA = re.compile(r"sm_([0-9]{2,3})[a-z]?")
_HIP = re.compile(r"gfx[0-9a-f]{3,5}")
_TEXT = re.compile(r"(cpu|cuda|hip) ([\w-]+) ([\w-]+)")
# The levels of x86 processors (System V ABI), by what Linux calls the features of each. One has
# those of the levels below it.
_LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v2": frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    "x86-64-v4": frozenset({"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}),
}
# Beside a GPU: what x86 processors of servers have since 2015.
_BESIDE_GPU = "x86-64-v3"


@dataclass(frozen=True)
class Target:
    """A processor, or a GPU and the processors that it may be beside.

    Attributes:
        api: ``cpu``, ``cuda`` or ``hip``.
        architecture: ``sm_90a``, ``gfx942``, ... ; of a processor, the level.
        processor: The level of x86 processors, or the name of the machine.
    """

    api: str
    architecture: str
    processor: str

    @classmethod
    def of(cls, name: str) -> Target:
        """The target of a user's name for a GPU, or for a level of x86 processors.

        Raises:
            OptionError: It is none.
        """
        if name in _LEVELS:
            return cls("cpu", name, name)
        apis = [api for api, names in (("cuda", _CUDA), ("hip", _HIP)) if names.fullmatch(name)]
        if not apis:
            raise OptionError(
                f"target={name!r} is neither a GPU nor a level of x86 processors.",
                "Give NVIDIA's name of an architecture (sm_80, sm_90a, sm_100a), AMD's (gfx942, "
                f"gfx950), or {', '.join(_LEVELS)}.",
            )
        machine = platform.machine()
        return cls(apis[0], name, _BESIDE_GPU if machine == "x86_64" else machine)

    @classmethod
    def written(cls, text: str) -> Target | None:
        """The target whose ``str`` is a text; ``None`` if it is of none."""
        found = _TEXT.fullmatch(text)
        return cls(*found.groups()) if found else None

    def __str__(self) -> str:
        return f"{self.api} {self.architecture} {self.processor}"

    @property
    def is_gpu(self) -> bool:
        return self.api != "cpu"

    @property
    def level(self) -> str:
        """The level of x86 processors; empty on others."""
        return self.processor if self.processor in _LEVELS else ""

    def lacks(self) -> str:
        """What this machine lacks to run what was made for the target; empty if nothing."""
        lacking = _lacking_gpu(self) if self.is_gpu else ""
        if lacking or _has(self.processor):
            return lacking
        return f"a processor of {self.processor}"


def _has(processor: str) -> bool:
    """Whether this machine's processor is of a level, or of that name."""
    if processor not in _LEVELS:
        return platform.machine() == processor
    names = list(_LEVELS)
    wanted = [_LEVELS[name] for name in names[: names.index(processor) + 1]]
    return set(cpu_info().get("flags", "").split()) >= frozenset().union(*wanted)


def _lacking_gpu(target: Target) -> str:
    here = gpu_here()
    if here is None:
        return f"a GPU of {target.architecture}, and torch sees none"
    api, architecture = here
    wanted = target.architecture
    if api == "cuda" and (number := _CUDA.fullmatch(wanted)):
        # The letter of sm_90a stands for instructions that all GPUs of the number have.
        wanted = f"sm_{number[1]}"
    if (api, architecture) != (target.api, wanted):
        return f"a GPU of {target.architecture}, and this one is {architecture}"
    return ""


def gpu_here() -> tuple[str, str] | None:
    """The API and the architecture of the first GPU that torch sees."""
    if not torch.cuda.is_available():
        return None
    if torch.version.hip:
        return "hip", torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    return "cuda", "sm_{}{}".format(*torch.cuda.get_device_capability(0))
