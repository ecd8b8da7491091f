"""``torch_max_backend.load``: a package as a function, without a compiler."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torch_max_backend.ahead_of_time import trees
from torch_max_backend.ahead_of_time.arguments import Arguments
from torch_max_backend.ahead_of_time.manifest import (
    CODE,
    GRAPH,
    MANIFEST,
    MAX_BYTES,
    WEIGHTS,
    Manifest,
    damaged,
    parsed,
)
from torch_max_backend.ahead_of_time.weights import header_digest, opened
from torch_max_backend.cache.compatibility import cache_key, misfits
from torch_max_backend.cache.store import Entry
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.driver.loading import load_graph
from torch_max_backend.errors import CompilationError, InputError, PackageError


def load(path: str | os.PathLike[str], *, verify: bool = False, pack: bool = False) -> Loaded:
    """Load a package that ``torch_max_backend.export`` wrote. It holds native code: load only what
    you trust.

    Nothing is compiled or traced. Format, versions, machine and checksums are checked before the
    code is loaded. Weights are mapped, not read: their file's header and size are checked, and its
    content if ``verify`` says so.

    Args:
        path: The folder.
        verify: Read all weights and compare their checksum.
        pack: Copy weights, at the first call, into the form in which the steps engine's kernels
            read them fastest: memory that processes do not share. What ``load_state_dict`` and
            other counted writes change is copied again.

    Returns:
        A function with the model's signature.

    Raises:
        PackageError: It cannot be read, is damaged, or is not for this machine and installation.
    """
    folder = Path(path)
    try:
        manifest = _manifest(folder)
        _check_fit(manifest)
        code = _checked(folder, manifest, verify)
    except OSError as e:
        raise PackageError(f"The package {folder} cannot be read: {e}") from e
    try:
        arguments = trees.loaded(manifest.arguments_tree, "arguments")
        results = trees.loaded(manifest.results_tree, "results")
        bound = Arguments(manifest, arguments)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as e:
        raise damaged(f"its structures are wrong: {ascii(str(e))[:100]}") from e
    views = [*(s.tensor for s in manifest.state), *manifest.constants.values()]
    tensors = opened(folder / WEIGHTS, views)
    constants = dict(zip(manifest.constants, tensors[len(manifest.state) :], strict=True))
    state = tensors[: len(manifest.state)]
    try:
        function = load_graph(
            manifest.key,
            manifest.signature,
            constants,
            range(len(state)),
            Entry(code, manifest.graphs),
            pack=pack,
        )
    except (CompilationError, ValueError, KeyError, IndexError) as e:
        raise damaged(f"MAX does not read its code: {e}") from e
    return Loaded(folder, manifest, bound, results, function, state)


class Loaded:
    """A model of a package. Called like the module that was exported, it returns what that would.

    It only infers: no result requires grad. Buffers that the model writes to (running statistics,
    caches) are its own and change from call to call; calls of several threads are not ordered.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        arguments: Arguments,
        results: pytree.TreeSpec,
        function: Any,
        state: list[torch.Tensor],
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._arguments = arguments
        self._spec = None if results.is_leaf() else results
        self._function = function
        self._state = state
        self._results = manifest.results

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Raises:
            InputError: An argument is not what the model was exported for.
            ExecutionError: The model failed while it ran.
        """
        made = self._function([*self._state, *self._arguments(args, kwargs)])
        results = [made[r.index] if r.index >= 0 else r.value for r in self._results]
        return results[0] if self._spec is None else self._spec.unflatten(results)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers that the module's ``state_dict`` has: the very tensors that
        the model uses, of which tied ones share memory."""
        kinds = ("parameter", "buffer")
        pairs = zip(self._manifest.state, self._state, strict=True)
        return {entry.name: tensor for entry, tensor in pairs if entry.kind in kinds}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy values into the parameters and buffers. The package on disk stays as it is.

        Args:
            state: A tensor for each name of ``state_dict()``, of the same shape.

        Raises:
            InputError: A name is missing or unknown, or a shape differs; nothing is copied then.
        """
        mine = self.state_dict()
        wrong = [f"missing: {name}" for name in mine if name not in state]
        wrong += [f"unknown: {name}" for name in state if name not in mine]
        wrong += [
            f"{name} is {list(state[name].shape)}, not {list(tensor.shape)}"
            for name, tensor in mine.items()
            if name in state and state[name].shape != tensor.shape
        ]
        if wrong:
            raise InputError("The state does not fit the model:", *(f"  {w}" for w in wrong[:20]))
        with torch.no_grad():
            for name, tensor in mine.items():
                tensor.copy_(state[name])

    def graph(self) -> str:
        """The compiled graph, as text.

        Raises:
            OSError: The package is no longer there.
        """
        return (self._path / GRAPH).read_text()

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{i.name}={i.value!r}"
            if i.kind == "constant"
            else f"{i.name}: {i.dtype or 'int'}[{', '.join(map(str, i.sizes))}]"
            for i in self._manifest.inputs
        )
        return f"<torch_max_backend package {self._path.name!r}: ({shown})>"


def _manifest(folder: Path) -> Manifest:
    with open(folder / MANIFEST, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise damaged("its manifest is too large")
    return parsed(text)


def _check_fit(manifest: Manifest) -> None:
    """Raise if the package is for another machine or installation."""
    other = ", ".join(misfits(manifest.components).values())
    if other:
        raise PackageError(
            f"The package is not for this machine and installation: {other}.",
            "Export the model here, or where torch, MAX, torch_max_backend and the CPU are those "
            "of here.",
        )
    if cache_key(manifest.components) != manifest.key:
        raise damaged("its key is not that of its components")


def _checked(folder: Path, manifest: Manifest, verify: bool) -> bytes:
    """The native code; raises unless all files are what the manifest says."""
    for name, member in manifest.members.items():
        size = (folder / name).stat().st_size
        if size != member.size:
            raise damaged(f"{name} has {size} bytes, not {member.size}")
    if header_digest(folder / WEIGHTS) != manifest.weights_header:
        raise damaged(f"the checksum of the header of {WEIGHTS} is wrong")
    if verify:
        for name in (GRAPH, WEIGHTS):
            with open(folder / name, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != manifest.members[name].sha256:
                raise damaged(f"the checksum of {name} is wrong")
    code = (folder / CODE).read_bytes()
    if hashlib.sha256(code).hexdigest() != manifest.members[CODE].sha256:
        raise damaged(f"the checksum of {CODE} is wrong")
    return code
