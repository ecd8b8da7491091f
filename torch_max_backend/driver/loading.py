"""From an artifact, stored or given, to the function that runs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from torch_max_backend import environment, profile
from torch_max_backend.cache import loaded_models, store
from torch_max_backend.compat.tracing import disable_current_modes
from torch_max_backend.driver.unit import Function
from torch_max_backend.errors import CompilationError
from torch_max_backend.log import get_logger
from torch_max_backend.process import fork_safety
from torch_max_backend.process.private_folders import place

if TYPE_CHECKING:
    from max.engine import Model

    from torch_max_backend.graph.signature_schema import Signature

log = get_logger("pipeline")


def load_graph(
    entry: str,
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
    given: store.Entry | None = None,
    replay: bool = False,
    fuse: bool | None = None,
    pack: bool = False,
) -> Function | None:
    """Load a stored graph without its FX graph; ``None`` if the store no longer has it and no
    artifact is ``given``.

    Raises:
        CompilationError: MAX cannot read the artifact that is ``given``.
    """
    clock, place = profile.Clock(), model_place(entry, given is None)
    with disable_current_modes(), loaded_models.alone(place):
        clock.restart()
        shared = loaded_models.get(place)
        models = stored_models(entry, given)
        if models is None:
            return None
        clock.lap("load")
        record = None
        if environment.profile():
            record = profile.start(clock, "loaded" if shared is None else "shared")
            profile.tell(record)
        return executable(models, signature, constants, static, record, replay, fuse, pack)


def executable(
    models: dict[str, Model],
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
    record: profile.Graph | None = None,
    replay: bool = False,
    fuse: bool | None = None,
    pack: bool = False,
) -> Function:
    """The function that runs the first of some loaded models; equal graphs will find them all.

    Args:
        models: The loaded models of one artifact, by the places where the memo keeps them.
        signature: How the first is called.
        constants: Tensors of the traced graph that are inputs of the model.
        static: Positions of arguments whose memory rarely changes.
        record: Called with the times of each call; ``None`` where calls are not timed.
        replay: Capture and replay kernel launches, on a GPU.
        fuse: The option of that name, for a plan.
        pack: The option of that name, for a plan.
    """
    from torch_max_backend.engines.steps.planner.plan import Plan
    from torch_max_backend.engines.steps.run import StepExecutable
    from torch_max_backend.runtime.complex_adapter import with_pairs

    model = next(iter(models.values()))
    if isinstance(model, Plan):
        wanted = False if fuse is None and not environment.fuse() else fuse
        run: Function = StepExecutable(model, signature, constants, static, wanted, pack)
    else:
        from torch_max_backend.engines.max.executable import Executable

        run = Executable(model, signature, constants, static, replay)
    function = with_pairs(run, signature)
    loaded_models.keep(models, function)
    if record is None:
        return function
    if isinstance(run, StepExecutable):
        from torch_max_backend.engines.steps.timing import time_steps

        record.steps = time_steps(run)
    return profile.timed(record, run, function)


def stored_models(entry: str, given: store.Entry | None = None) -> dict[str, Model] | None:
    """The model of a key, by its place: the one that is loaded, or that of the stored artifact and
    behind it the artifact's others."""
    cached = given is None
    place = model_place(entry, cached)
    model = loaded_models.get(place)
    if model is not None:
        return {place: model}
    stored = given or store.get(entry)
    if stored is None:
        return None
    try:
        models = _models_of(stored.artifact)
    except CompilationError as e:
        if not cached:
            raise
        log.warning("A cached artifact is ignored: %s", e)
        store.discard(entry)
        return None
    loaded = {model_place(key, cached): m for key, m in zip(stored.graphs, models, strict=True)}
    return {place: loaded.pop(place), **loaded}


def _models_of(artifact: bytes) -> list[Any]:
    """The plan or the models of an artifact.

    Raises:
        CompilationError: It cannot be read, or its kernels cannot be built.
    """
    from torch_max_backend.engines.steps.serialize import MAGIC

    if artifact.startswith(MAGIC):
        from torch_max_backend.engines.steps.serialize import deserialized
        from torch_max_backend.engines.steps.tables import kernels_of

        plan = deserialized(artifact)
        kernels_of(plan)
        return [plan]
    from torch_max_backend.engines.max.loading import load_serialized

    fork_safety.check_compile()
    return load_serialized(artifact)


def model_place(entry: str, cached: bool) -> str:
    """Under which the memo keeps a model: with the folder of its artifact, if it has one, so that
    what is asked to be on disk is never answered by a model that is not."""
    return f"{entry} {place('')}" if cached else entry
