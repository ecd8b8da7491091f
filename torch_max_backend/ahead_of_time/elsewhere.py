"""Packages for machines that are not this one: other processors, and GPUs.

For processors, a plan is made that uses no instructions of some alone; the libraries that it calls
are built where it is loaded. For a GPU the graph moves to the device, as torch's
``move_to_device_pass`` would move it, but without one; MAX compiles it for one by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from torch_max_backend.cache import store
from torch_max_backend.cache.compatibility import cache_key, public_version
from torch_max_backend.cache.targets import Target
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.driver.compiling import described, make_plans
from torch_max_backend.engines.max.module import build_module, without_calls
from torch_max_backend.engines.max.worker import compile_elsewhere
from torch_max_backend.errors import CompilationError
from torch_max_backend.graph.nested import every_node

if TYPE_CHECKING:
    from torch_max_backend.ahead_of_time.program import Program
    from torch_max_backend.driver.job import Job

# Where a model is on the machine that it is compiled for.
DEVICE = torch.device("cuda:0")


def on_device(found: Program) -> Program:
    """The program with all that is on CPU on ``DEVICE``; the values of its state stay here."""
    move(found.module)
    inputs = [
        (replace(given, device=str(DEVICE)) if given.kind == "tensor" else given, node)
        for given, node in found.inputs
    ]
    return replace(found, inputs=inputs)


def move(module: GraphModule) -> None:
    """Have a traced graph compute on ``DEVICE`` what it was to compute on CPU."""
    for node in every_node(module):
        node.args = pytree.tree_map(_device, node.args)
        node.kwargs = pytree.tree_map(_device, node.kwargs)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(_tensor, node.meta["val"])


def _device(value: Any) -> Any:
    return DEVICE if isinstance(value, torch.device) and value.type == "cpu" else value


def _tensor(value: Any) -> Any:
    mode = getattr(value, "fake_mode", None)
    if mode is None or value.device.type != "cpu":
        return value
    with mode:
        strides = value.stride()
        return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=DEVICE)


def for_target(job: Job, target: Target) -> Job:
    """The job of an artifact for a target: nothing of this machine is part of its key."""
    torch_version = public_version(torch.__version__)
    parts: Mapping[str, str] = {**job.parts, "target": str(target), "torch": torch_version}
    return replace(job, parts=parts, entry=cache_key(parts))


def compile_for(job: Job, target: Target) -> None:
    """Plan or compile a job for a target, and store the artifact.

    Raises:
        StepsError: An operation has no step, and ``engine="steps"``.
        CompilationError: MAX could not compile it.
    """
    if store.has(job.entry) or (job.engine != "max" and make_plans([job])):
        return
    what, count = described([job])
    what += f" for {target.architecture}"
    module, libraries = build_module([job.trace])
    try:
        artifact = compile_elsewhere(
            module, libraries, what, count, background=False, target=target
        )
    except CompilationError as e:
        if without_calls(e, [job.trace]):
            return compile_for(job, target)
        raise
    store.put(job.entry, artifact, job.parts, [job.entry])
