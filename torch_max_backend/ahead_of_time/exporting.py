"""``torch_max_backend.export``: a compiled model as a package."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram

from torch_max_backend.ahead_of_time.manifest import (
    CODE,
    GRAPH,
    MANIFEST,
    MEMBERS,
    WEIGHTS,
    Manifest,
    Member,
    State,
)
from torch_max_backend.ahead_of_time.trees import dumped
from torch_max_backend.ahead_of_time.weights import header_digest, save, stored
from torch_max_backend.cache.targets import Target
from torch_max_backend.engines.steps.instructions import for_any_processor
from torch_max_backend.errors import PackageError
from torch_max_backend.options import Options

if TYPE_CHECKING:
    from torch_max_backend.ahead_of_time.program import Program
    from torch_max_backend.driver.job import Job


def export(
    model: torch.nn.Module | ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    path: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    target: str | None = None,
) -> Path:
    """Compile a model for inference and write it, with its weights, as a package.

    What comes out is a folder that ``torch_max_backend.load`` turns into a function, without the
    model's code and without a compiler, on machines of the same kind. All of the model is compiled:
    what MAX does not take is an error. The artifact passes through the cache.

    Args:
        model: A module, in the mode (``eval()``, ``train()``) in which it is to run, or what
            ``torch.export.export`` made of one.
        args: Example arguments, for a module. Those that are neither tensors nor marked as dynamic
            are part of what is compiled.
        kwargs: Example keyword arguments, for a module.
        dynamic_shapes: Which sizes may vary, as ``torch.export.export`` takes it.
        path: The folder to write. A package that is there is replaced.
        options: ``bank`` of ``torch.compile(..., backend="max", options=...)``; the others have
            no effect.
        target: The machines that the package is for, instead of those like this one. A level of
            x86 processors: ``"x86-64-v3"`` (AVX2), ``"x86-64-v4"`` (AVX-512). Or a GPU:
            ``"sm_90a"``, ``"gfx942"``, ... The model and its arguments are on CPU here; the loaded
            model and its arguments are on ``cuda:0`` there, beside any processor of x86-64-v3.

    Returns:
        The folder.

    Raises:
        OptionError: An option is unknown or has a bad value; the target is not known.
        UnsupportedError: Something in the graph has no MAX counterpart; all of it is listed.
        ConversionError: A lowering failed.
        CompilationError: The graph could not be compiled.
        PackageError: The folder cannot be written, or is there and no package; or the structure
            of arguments or results cannot be packaged.
    """
    path = Path(path)
    _check_place(path)
    prepared = Prepared.of(
        model, args, kwargs, dynamic_shapes=dynamic_shapes, options=options, target=target
    )
    prepared.compile()
    prepared.write(path)
    return path


@dataclass
class Prepared:
    """A model on its way into a package: traced, analysed and found fit, not yet compiled.

    Attributes:
        program: What ``torch.export`` made of it, as the backend compiles it.
        text: Its graph, to read.
        job: The graph to be compiled.
        fields: What the manifest says of its calls.
        target: The machine it is for, if it is not this one.
    """

    program: Program
    text: str
    job: Job
    fields: dict[str, Any]
    target: Target | None = None

    @classmethod
    def of(
        cls,
        model: torch.nn.Module | ExportedProgram,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        options: Mapping[str, Any] | None = None,
        target: str | None = None,
    ) -> Prepared:
        """Trace and analyse a model; the arguments and errors are those of ``export``."""
        from torch_max_backend.driver.passes import own_modes

        with own_modes():
            import torch_max_backend.ops  # noqa: F401  registers the lowerings
        from torch_max_backend.ahead_of_time.elsewhere import for_target, on_device
        from torch_max_backend.ahead_of_time.program import call, program

        elsewhere = None if target is None else Target.of(target)
        parsed = replace(
            Options.parse(None, options), cache=True, fallback="error", background=False
        )
        if not isinstance(model, ExportedProgram):
            model = getattr(model, "_orig_mod", model)
            with torch.no_grad():
                model = torch.export.export(
                    model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
                )
        elif args or kwargs or dynamic_shapes:
            raise PackageError(
                "An ExportedProgram has its arguments and sizes already.",
                "Call export(exported_program, path=...).",
            )
        found = program(model)
        if elsewhere is not None and elsewhere.is_gpu:
            found = on_device(found)
        trees = dumped(found.trees[0], "the arguments"), dumped(found.trees[1], "the results")
        text = _readable(found.module)
        from torch_max_backend.driver.job import job_of

        with for_any_processor() if elsewhere else nullcontext():
            job = job_of(found.module, range(len(found.state)), parsed)
        if elsewhere is not None:
            job = for_target(job, elsewhere)
        inputs, symbols, conditions = call(found, job.trace.symbols)
        fields = {
            "inputs": inputs,
            "names": found.names,
            "symbols": symbols,
            "conditions": conditions,
            "results": tuple(found.results),
            "arguments_tree": trees[0],
            "results_tree": trees[1],
        }
        return cls(found, text, job, fields, elsewhere)

    def compile(self) -> None:
        """Compile the job, for this machine or the target; the artifact is in the cache then.

        Raises:
            CompilationError: The graph could not be compiled.
        """
        if self.target is None:
            self.job.functions()
        else:
            from torch_max_backend.ahead_of_time.elsewhere import compile_for

            compile_for(self.job, self.target)

    def write(self, path: Path) -> None:
        """Write the package; the job has been compiled.

        Raises:
            PackageError: See ``export``.
            CacheError: The cache could not keep the artifact.
        """
        from torch_max_backend.driver.autograd_cache import Carried

        state, job = self.program.state, self.job
        carried = Carried.of(job.entry)
        tensors = [(name, value) for name, _, value in state]
        tensors += [(f"graph/{name}", value) for name, value in job.constants.items()]
        members, views = stored(tensors)
        if self.target is not None and self.target.is_gpu:
            from torch_max_backend.ahead_of_time.elsewhere import DEVICE

            views = [replace(view, device=str(DEVICE)) for view in views]
        kept = zip(state, views[: len(state)], strict=True)
        manifest = Manifest(
            components=carried.components,
            key=job.entry,
            graphs=carried.graphs,
            signature=job.trace.signature,
            state=tuple(State(name, kind, view) for (name, kind, _), view in kept),
            constants=dict(zip(job.constants, views[len(state) :], strict=True)),
            **self.fields,
        )
        try:
            _write(path, manifest, carried.artifact, members, self.text)
        except OSError as e:
            raise PackageError(f"The package {path} could not be written: {e}") from e


def _write(
    path: Path,
    manifest: Manifest,
    artifact: bytes,
    members: Mapping[str, torch.Tensor],
    text: str,
) -> None:
    """Write all files into a folder beside, which then takes the place of the package."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    folder.mkdir()
    try:
        (folder / CODE).write_bytes(artifact)
        (folder / GRAPH).write_text(text)
        save(members, folder / WEIGHTS)
        (folder / WEIGHTS).chmod((folder / GRAPH).stat().st_mode)  # or none but the owner reads it
        found = {name: _member(folder / name) for name in MEMBERS}
        header = header_digest(folder / WEIGHTS)
        complete = replace(manifest, weights_header=header, members=found)
        (folder / MANIFEST).write_bytes(complete.encoded())
        for file in folder.iterdir():
            with open(file, "rb+") as opened:
                os.fsync(opened.fileno())
        _check_place(path)
        old = folder.with_name(folder.name + ".old")
        if path.exists():
            path.rename(old)
        folder.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _member(path: Path) -> Member:
    with open(path, "rb") as file:
        return Member(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _check_place(path: Path) -> None:
    """Raise unless nothing but a package, or an empty folder, is in the place of a new one."""
    if not path.exists() and not path.is_symlink():
        return
    names = {p.name for p in path.iterdir()} if path.is_dir() else {""}
    if path.is_symlink() or names not in (set(), {MANIFEST, *MEMBERS}):
        raise PackageError(f"{path} is there, and is no package.", "Give another path.")


def _readable(module: torch.fx.GraphModule) -> str:
    """The graph with dtypes and sizes, without the names of files of this machine."""
    lines = module.print_readable(print_output=False).splitlines()
    kept = [line.rstrip() for line in lines if not line.lstrip().startswith("#")]
    return "\n".join(line for line in kept if line) + "\n"
