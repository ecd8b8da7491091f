"""What a package says of itself: one JSON file, of a format with a number.

Nothing of it is trusted to be of the right shape: it is read field by field, expressions have a
grammar, and a checksum covers all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch_max_backend.ahead_of_time.plain import from_plain, to_plain
from torch_max_backend.errors import PackageError
from torch_max_backend.graph.expressions import NAME, checked
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.graph.views import CALLS

FORMAT = 1
MANIFEST = "manifest.json"
CODE = "code.mef"
WEIGHTS = "weights.safetensors"
GRAPH = "graph.txt"
MEMBERS = (CODE, WEIGHTS, GRAPH)
MAX_BYTES = 256 * 2**20
# In the place of the checksum, when it is computed.
_BLANK = b"0" * 64
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEVICE = re.compile(r"cpu|cuda:[0-9]{1,3}")
_DTYPE = re.compile(r"[a-z][a-z0-9_]{1,30}")
_KINDS: tuple[tuple[set[str], Callable[[Manifest], Iterable[Any]]], ...] = (
    ({"tensor", "int", "constant"}, lambda m: m.inputs),
    ({"parameter", "buffer", "temporary", "constant"}, lambda m: m.state),
    ({"none", "value", "input", "scalar"}, lambda m: m.signature.outputs),
    ({"tensor", "constant", "carrier", "scalar", "address", "seed"}, lambda m: m.signature.inputs),
)


@dataclass(frozen=True)
class Member:
    """A file of a package: its size in bytes, and the SHA-256 of its content."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Stored:
    """A tensor as a view of one that the weights file holds.

    Attributes:
        member: The name of the tensor in the file; several views may share it.
        dtype: The dtype of the view, without "torch.".
        shape: Its sizes.
        strides: Its strides, in elements.
        offset: Where it begins, in elements.
        device: Where it lives once loaded.
    """

    member: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str


@dataclass(frozen=True)
class State:
    """A tensor that the loaded model keeps: one of the graph's arguments.

    Attributes:
        name: Its name in the module.
        kind: ``parameter``, ``buffer``, ``temporary`` (a buffer that is in no ``state_dict``) or
            ``constant`` (a tensor that is an attribute of the module).
        tensor: Its value.
    """

    name: str
    kind: str
    tensor: Stored


@dataclass(frozen=True)
class Input:
    """A leaf of the arguments of a call.

    Attributes:
        name: What messages call it: ``x``, ``cache['keys']``.
        kind: ``tensor``; ``int`` (any that fits ``sizes``); ``constant`` (only ``value``).
        dtype: The tensor's dtype, without "torch.".
        device: The tensor's device.
        sizes: The tensor's sizes, or the int: a number, or an expression of symbols.
        value: The constant.
    """

    name: str
    kind: str
    dtype: str = ""
    device: str = ""
    sizes: tuple[int | str, ...] = ()
    value: int | float | bool | str | None = None


@dataclass(frozen=True)
class Symbol:
    """A size that may vary.

    Attributes:
        least: The smallest value.
        most: The largest, or ``None``.
        source: Where it is read: the input, and the dim (-1: the int itself).
        factor: The size there is ``factor`` times the symbol plus ``offset``.
        offset: See ``factor``.
        argument: Whether the graph has it as one of its arguments, after those of the call.
    """

    least: int
    most: int | None
    source: tuple[int, int]
    factor: int = 1
    offset: int = 0
    argument: bool = False


@dataclass(frozen=True)
class Result:
    """A leaf of what a call returns: result ``index`` of the graph, or ``value`` if it is -1."""

    index: int
    value: int | float | bool | str | None = None


@dataclass(frozen=True)
class Manifest:
    """What a package says of itself.

    Attributes:
        components: What the key of the graph is made of; the environment is part of it.
        key: The key of the graph.
        graphs: The keys of all graphs of the compiled code, in order.
        signature: How the compiled model is called.
        state: The tensors that come first among the graph's arguments.
        constants: Tensors of the graph that are inputs of the model.
        inputs: The leaves of a call's arguments, in order.
        names: The parameters of the call: first those that are positional.
        symbols: The sizes that may vary, by their name in expressions.
        conditions: Expressions of sizes that have to be true, and how a message says them.
        results: The leaves of what a call returns.
        arguments_tree: The structure of ``(args, kwargs)``.
        results_tree: The structure of what a call returns.
        weights_header: SHA-256 of the weights file's header.
        members: The package's other files.
    """

    components: dict[str, str]
    key: str
    graphs: tuple[str, ...]
    signature: Signature
    state: tuple[State, ...]
    constants: dict[str, Stored]
    inputs: tuple[Input, ...]
    names: tuple[str, ...]
    symbols: dict[str, Symbol]
    conditions: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]
    arguments_tree: Any
    results_tree: Any
    weights_header: str = ""
    members: dict[str, Member] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The content of the manifest's file."""
        return encoded({"format": FORMAT, **to_plain(self)})


def parsed(text: bytes) -> Manifest:
    """The manifest of a package's file.

    Raises:
        PackageError: It has another format, is damaged, or holds what no manifest may hold.
    """
    try:
        found = json.loads(text)
        version = found.pop("format")
        if version != FORMAT:
            raise PackageError(
                f"The package has format {ascii(version)[:20]}; this torch_max_backend reads "
                f"{FORMAT}.",
                "Export the model again with the torch_max_backend that is installed here.",
            )
        checksum = found.pop("sha256").encode()
        if hashlib.sha256(text.replace(checksum, _BLANK, 1)).hexdigest().encode() != checksum:
            raise ValueError("its checksum is wrong")
        manifest = from_plain(Manifest, found)
        _check(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise damaged(f"its manifest is wrong: {ascii(str(e))[:100]}") from e
    return manifest


def damaged(reason: str) -> PackageError:
    """The error for a package that is not what ``export`` wrote."""
    return PackageError(
        f"This is no package of torch_max_backend, or a damaged one: {reason}.",
        "Copy it again, or make it again with torch_max_backend.export.",
    )


def encoded(fields: dict[str, Any]) -> bytes:
    """The content of a manifest's file: the checksum of all the rest, and its fields."""
    text = json.dumps({"sha256": _BLANK.decode(), **fields}, indent=1).encode() + b"\n"
    return text.replace(_BLANK, hashlib.sha256(text).hexdigest().encode(), 1)


def _check(manifest: Manifest) -> None:
    """Raise ``ValueError`` where the parts of a manifest do not fit together."""
    signature = manifest.signature
    known = signature.symbols.keys()
    for names, texts in (
        (manifest.symbols.keys(), _of_a_call(manifest)),
        (known, _before_a_run(signature)),
        (known | signature.data_symbols.keys(), _after_a_run(signature)),
    ):
        for name in names:
            _require(NAME.fullmatch(name), f"symbol {name!r}")
        for text in texts:
            checked(text, names)
    tensors = [*(s.tensor for s in manifest.state), *manifest.constants.values()]
    for dtype, device in (
        *((t.dtype, t.device) for t in tensors),
        *((i.dtype, i.device) for i in manifest.inputs if i.kind == "tensor"),
    ):
        _require(_DTYPE.fullmatch(dtype), f"dtype {dtype!r}")
        _require(_DEVICE.fullmatch(device), f"device {device!r}")
    for kinds, items in _KINDS:
        for item in items(manifest):
            _require(item.kind in kinds, f"kind {item.kind!r}")
    for item in signature.inputs:
        _require(item.kind != "seed" or _DEVICE.fullmatch(item.source), "a seed's device")
    names = {name for o in signature.outputs for name, _ in o.views}
    _require(names <= CALLS, "a view")
    taken = sum(i.kind != "constant" for i in manifest.inputs)
    extra = sum(s.argument for s in manifest.symbols.values())
    arguments = len(manifest.state) + taken + extra
    _require(signature.arguments == arguments, "the number of arguments")
    _require(all(r.index < len(signature.outputs) for r in manifest.results), "its results")
    for symbol in manifest.symbols.values():
        i, dim = symbol.source
        _require(0 <= i < len(manifest.inputs), "the source of a symbol")
        given = manifest.inputs[i]
        dims = range(-1, 0) if given.kind == "int" else range(len(given.sizes))
        _require(dim in dims, "the source of a symbol")
        _require(symbol.factor != 0, "the factor of a symbol")
    _require(manifest.key in manifest.graphs, "its key")
    _require(manifest.members.keys() == set(MEMBERS), "the list of its files")
    for member in manifest.members.values():
        _require(_SHA256.fullmatch(member.sha256) and member.size >= 0, "a checksum")


def _require(holds: Any, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} cannot be")


def _of_a_call(manifest: Manifest) -> Iterator[str]:
    """The expressions over the symbols of a call."""
    yield from (s for i in manifest.inputs for s in i.sizes if isinstance(s, str))
    yield from (text for text, _ in manifest.conditions)


def _before_a_run(signature: Signature) -> Iterator[str]:
    """The expressions that the runtime evaluates before the model runs."""
    yield from (i.source for i in signature.inputs if i.kind in ("carrier", "scalar"))


def _after_a_run(signature: Signature) -> Iterator[str]:
    """The expressions that the runtime evaluates when the model has run."""
    yield from (o.source for o in signature.outputs if o.kind == "scalar")
    yield from (text for text, _ in signature.checks)
    layouts = (*signature.layouts, *(o.layout for o in signature.outputs if o.layout))
    yield from (t for layout in layouts for t in (*layout.sizes, *layout.strides))
