"""The tensors of a package: one safetensors file, in which memory that tensors share is once.

A file that is opened is mapped, not read: a page is read when it is first used, and processes
share it. What is written to a tensor stays in the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from torch_max_backend.ahead_of_time.manifest import Stored, damaged

# Dtypes that the file knows; the bytes of others are kept as uint8.
_KNOWN = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip
_LENGTH_BYTES = 8
_MAX_HEADER = 100_000_000


def stored(
    tensors: Sequence[tuple[str, torch.Tensor]],
) -> tuple[dict[str, torch.Tensor], list[Stored]]:
    """Take tensors apart into memory and views of it.

    Args:
        tensors: The tensors, with names; equal names are not allowed.

    Returns:
        What the file is to hold, and each tensor as a view of it.
    """
    tensors = [(n, t.detach().resolve_conj().resolve_neg()) for n, t in tensors]
    sharing: dict[tuple[str, int], list[int]] = {}
    for i, (_, tensor) in enumerate(tensors):
        pointer = tensor.untyped_storage().data_ptr() if tensor.numel() else -i
        sharing.setdefault((str(tensor.device), pointer), []).append(i)
    members: dict[str, torch.Tensor] = {}
    views: dict[int, Stored] = {}
    for group in sharing.values():
        name = tensors[group[0]][0]
        member, found = _together([tensors[i][1] for i in group], name)
        members[name] = member
        views.update(zip(group, found, strict=True))
    return members, [views[i] for i in range(len(tensors))]


def _together(tensors: list[torch.Tensor], name: str) -> tuple[torch.Tensor, list[Stored]]:
    """Tensors of one storage as one member: contiguous, of all that lies between the first and the
    last byte that they use."""
    first = tensors[0]
    if len(tensors) == 1 and _elements(first) > first.numel():
        tensors = [first.contiguous()]  # not dense: what is between its elements is nobody's
    starts = [t.storage_offset() * t.element_size() for t in tensors]
    ends = [s + _elements(t) * t.element_size() for s, t in zip(starts, tensors, strict=True)]
    dtype = first.dtype if first.dtype in _KNOWN else torch.uint8
    if any(t.dtype != first.dtype for t in tensors):
        dtype = torch.uint8
    # Aligned for each of the dtypes.
    start, end = min(starts), max(ends)
    start -= start % max(t.element_size() for t in tensors)
    size = dtype.itemsize
    views = [
        Stored(
            member=name,
            dtype=str(t.dtype).removeprefix("torch."),
            shape=tuple(t.shape),
            strides=t.stride(),
            offset=(s - start) // t.element_size(),
            device=str(t.device),
        )
        for s, t in zip(starts, tensors, strict=True)
    ]
    first = tensors[0]
    if first.is_contiguous() and first.dtype == dtype and ends[0] - starts[0] == end - start:
        return first.cpu(), views
    flat = torch.empty(0, dtype=dtype, device=first.device)
    flat.set_(first.untyped_storage(), start // size, ((end - start) // size,))
    return flat.cpu().contiguous(), views


def _elements(tensor: torch.Tensor) -> int:
    """How many elements lie between a tensor's first and last, both included."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def save(members: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the file.

    Raises:
        OSError: It could not be written.
    """
    from safetensors.torch import save_file

    # It refuses tensors that share memory; none of these do.
    save_file(dict(members), path)


def header_digest(path: Path) -> str:
    """SHA-256 of the part of a weights file that says what the rest is.

    Raises:
        OSError: It could not be read.
        PackageError: It is not such a file.
    """
    with open(path, "rb") as file:
        length = file.read(_LENGTH_BYTES)
        size = int.from_bytes(length, "little")
        if size > min(_MAX_HEADER, os.fstat(file.fileno()).st_size):
            raise damaged(f"{path.name} has no header")
        return hashlib.sha256(length + file.read(size)).hexdigest()


def opened(path: Path, views: Sequence[Stored]) -> list[torch.Tensor]:
    """The tensors of a weights file, mapped; those on a device are copied there.

    Raises:
        PackageError: It does not hold them.
    """
    from safetensors import SafetensorError, safe_open

    found: list[torch.Tensor] = []
    loaded: dict[tuple[str, str], torch.Tensor] = {}
    known = {str(d).removeprefix("torch.") for d in _KNOWN}
    dtypes: dict[str, set[str]] = {}
    for view in views:
        dtypes.setdefault(view.member, set()).add(view.dtype)
    try:
        with safe_open(path, framework="pt") as file:
            for view in views:
                place = (view.member, view.device)
                if place not in loaded:
                    tensor = file.get_tensor(view.member)
                    if len(dtypes[view.member]) > 1 or view.dtype not in known:
                        tensor = tensor.clone()  # bytes, which the file does not align
                    loaded[place] = tensor.to(view.device)
                found.append(_view(loaded[place], view))
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as e:
        raise damaged(f"{path.name}: {ascii(str(e))[:100]}") from e
    return found


def _view(member: torch.Tensor, view: Stored) -> torch.Tensor:
    dtype = getattr(torch, view.dtype)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{view.dtype} is no dtype")
    same = member.dtype == dtype and member.shape == view.shape
    if same and view.offset == 0 and member.stride() == view.strides:
        return member
    flat = member.reshape(-1)
    if flat.dtype != dtype:
        flat = flat[: flat.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return flat.as_strided(view.shape, view.strides, flat.storage_offset() + view.offset)
