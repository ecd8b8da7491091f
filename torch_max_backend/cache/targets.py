"""Machines that artifacts are compiled for while they are not this one."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass

import torch

from torch_max_backend.errors import OptionError
from torch_max_backend.process.processor import cpu_info

_CUDA = re.compile(r"sm_([0-9]{2,3})[a-z]?")
_HIP = re.compile(r"gfx[0-9a-f]{3,5}")
_TEXT = re.compile(r"(cuda|hip) (\w+) ([\w-]+)")
# Beside the GPU: what each x86 processor has that was sold for servers since 2015.
_LEVEL = "x86-64-v3"
_LEVEL_FLAGS = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"})


@dataclass(frozen=True)
class Target:
    """A GPU, and the processors that it may be beside.

    Attributes:
        api: ``cuda`` or ``hip``.
        architecture: ``sm_90a``, ``gfx942``, ...
        processor: The level of x86 processors, or the name of the architecture.
    """

    api: str
    architecture: str
    processor: str

    @classmethod
    def of(cls, name: str) -> Target:
        """The target of a user's name for a GPU.

        Raises:
            OptionError: It is none.
        """
        apis = [api for api, names in (("cuda", _CUDA), ("hip", _HIP)) if names.fullmatch(name)]
        if not apis:
            raise OptionError(
                f"target={name!r} is no architecture of a GPU.",
                "Give NVIDIA's name (sm_80, sm_90a, sm_100a) or AMD's (gfx942, gfx950).",
            )
        machine = platform.machine()
        return cls(apis[0], name, _LEVEL if machine == "x86_64" else machine)

    @classmethod
    def written(cls, text: str) -> Target | None:
        """The target whose ``str`` is a text; ``None`` if it is of none."""
        found = _TEXT.fullmatch(text)
        return cls(*found.groups()) if found else None

    def __str__(self) -> str:
        return f"{self.api} {self.architecture} {self.processor}"

    @property
    def level(self) -> str:
        """The level of x86 processors; empty on others."""
        return self.processor if self.processor == _LEVEL else ""

    def lacks(self) -> str:
        """What this machine lacks to run what was compiled for the target; empty if nothing."""
        here = _architecture()
        if here is None:
            return f"a GPU of {self.architecture}, and torch sees none"
        if not self._runs_on(*here):
            return f"a GPU of {self.architecture}, and this one is {here[1]}"
        if not self.level and platform.machine() != self.processor:
            return f"a processor {self.processor}"
        if self.level and not set(cpu_info().get("flags", "").split()) >= _LEVEL_FLAGS:
            return f"a processor of {self.level}"
        return ""

    def _runs_on(self, api: str, architecture: str) -> bool:
        if api != self.api:
            return False
        if api == "hip":
            return architecture == self.architecture
        # The letter of sm_90a stands for instructions that all GPUs of the number have.
        number = _CUDA.fullmatch(self.architecture)
        return number is not None and architecture == f"sm_{number[1]}"


def _architecture() -> tuple[str, str] | None:
    """The API and the architecture of the first GPU that torch sees."""
    if not torch.cuda.is_available():
        return None
    if torch.version.hip:
        return "hip", torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    return "cuda", "sm_{}{}".format(*torch.cuda.get_device_capability(0))
