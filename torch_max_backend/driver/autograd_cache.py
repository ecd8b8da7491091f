"""Our compiled graphs in AOTAutograd's cache, so that a warm start traces nothing.

torch keeps what AOTAutograd found out about a Dynamo graph; the entry names our artifact by its
key and holds no weights. The artifact itself stays in our own store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_max_backend.cache import store
from torch_max_backend.cache.compatibility import environment_components, misfits, runtime_digest
from torch_max_backend.compat import autograd_key
from torch_max_backend.compat.autograd import FXGraphCacheMiss, OutputCode, config
from torch_max_backend.driver.loading import load_graph
from torch_max_backend.driver.precision import precisions
from torch_max_backend.driver.unit import CompiledGraph, Function
from torch_max_backend.errors import CacheError
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.options import Options
from torch_max_backend.registry.digest import is_ours, lowering_digest
from torch_max_backend.registry.lowerings import registry


@dataclass
class MaxOutputCode(OutputCode):
    """A compiled graph in the form that AOTAutograd's cache keeps.

    Attributes:
        compiled: Everything but the loaded model once serialized.
        carried: The artifact itself, once serialized ahead of time.
    """

    compiled: CompiledGraph
    carried: Carried | None = None

    def __post_init__(self) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True

    @classmethod
    def unstored(cls, function: Callable[[list[Any]], list[Any]]) -> MaxOutputCode:
        """A graph without an artifact, for a trace that no cache keeps."""
        return cls(CompiledGraph(function, "", Signature(0), {}, ()))

    @property
    def direct(self) -> Function | None:
        """What may be called instead, if that is known."""
        return getattr(self.compiled.function, "direct", None)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        return self.compiled.function(inputs)

    def prepare_for_serialization(self) -> None:
        kept = self.compiled
        self.compiled = replace(
            kept, function=_not_loaded, constants=dict(kept.constants), static=tuple(kept.static)
        )
        if ahead_of_time():
            self.carried = Carried.of(kept.key)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Load the artifact after a hit.

        Raises:
            FXGraphCacheMiss: Our store no longer has it; AOTAutograd then traces again.
            CacheError: It was saved ahead of time, and is damaged or not for this machine.
        """
        kept = self.compiled
        stored = None
        if self.carried is not None:
            self.carried.check(kept.key)
            stored = store.Entry(self.carried.artifact, self.carried.graphs)
        function = load_graph(
            kept.key,
            kept.signature,
            kept.constants,
            kept.static,
            stored,
            kept.replay,
            kept.fuse,
            kept.pack,
        )
        if function is None:
            raise FXGraphCacheMiss(f"artifact {kept.key} is gone")
        self.compiled = replace(kept, function=function)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing to do: no graph of ours holds Triton kernels."""


@dataclass
class Carried:
    """An artifact that travels with a function that torch saves (``aot_compile``).

    Attributes:
        artifact: The compiled module, native code.
        sha256: Its checksum.
        graphs: The keys of its graphs, in order.
        components: What the key of this graph is made of.
    """

    artifact: bytes
    sha256: str
    graphs: tuple[str, ...]
    components: dict[str, str]

    @classmethod
    def of(cls, key: str) -> Carried:
        """The stored artifact of a key.

        Raises:
            CacheError: It could not be stored, so it cannot be saved either.
        """
        stored, parts = store.get(key), store.components(key)
        if stored is None or parts is None:
            raise CacheError(
                "What is compiled ahead of time passes through the cache, which has no artifact "
                f"{key}.",
                "Run: python -m torch_max_backend doctor",
            )
        digest = hashlib.sha256(stored.artifact).hexdigest()
        return cls(stored.artifact, digest, stored.graphs, parts)

    def check(self, key: str) -> None:
        """Raise if the artifact is damaged, or was made for another machine or other versions.

        Raises:
            CacheError: It is.
        """
        if hashlib.sha256(self.artifact).hexdigest() != self.sha256 or key not in self.graphs:
            raise CacheError("The saved function is damaged: save it again.")
        other = ", ".join(misfits(self.components).values())
        if other:
            raise CacheError(
                f"The saved function is not for this machine and installation: {other}.",
                "Compile it here, with aot_compile.",
            )


def ahead_of_time() -> bool:
    """Whether torch compiles for ``save_compiled_function`` now."""
    return bool(config.bypass_autograd_cache_key and config.bundled_autograd_cache)


def _not_loaded(arguments: list[Any]) -> list[Any]:
    raise RuntimeError("a cached graph was called before it was loaded")


def tag(options: Options, example_inputs: Sequence[Any]) -> str:
    """What AOTAutograd's key must know of us: versions, our sources, the user's lowerings, options,
    and which arguments lie in the same memory, which torch's key leaves out."""
    parts = [f"{k}={v}" for k, v in sorted(environment_components().items())]
    parts.append(f"options={options}")
    parts.append(f"precision={precisions()}")
    parts.append(f"runtime={runtime_digest()}")
    parts.append(f"shared={_shared(example_inputs)}")
    # Without sources that a function of the arguments tells: see ``CompiledGraph.reusable``. And
    # without this package's lowerings, which need not be registered yet.
    own = [op for op, lowering in registry.items() if not is_ours(lowering)]
    parts += [f"{op}={lowering_digest(registry[op])}" for op in sorted(own, key=str)]
    return autograd_key.MARK + hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _shared(example_inputs: Sequence[Any]) -> list[list[tuple[int, str]]]:
    """The arguments that lie in the same memory, and where in it: what is written to one of them is
    seen in the others."""
    groups: dict[int, list[int]] = {}
    for i, value in enumerate(example_inputs):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            groups.setdefault(value.untyped_storage()._cdata, []).append(i)
    return [
        [(i, str(example_inputs[i].storage_offset())) for i in group]
        for group in groups.values()
        if len(group) > 1
    ]


@contextmanager
def autograd_cache(
    enabled: bool, options: Options, example_inputs: Sequence[Any]
) -> Iterator[None]:
    """In the body, AOTAutograd caches what is compiled under keys of our own, or nothing; ahead of
    time it does what torch asks for."""
    if ahead_of_time():
        yield
        return
    autograd_key.install()
    wanted = enabled and config.enable_autograd_cache
    tagged = torch.compiler.config.cache_key_tag + tag(options, example_inputs) if wanted else ""
    with ExitStack() as stack:
        stack.enter_context(
            config.patch(bundled_autograd_cache=wanted, enable_autograd_cache=wanted)
        )
        stack.enter_context(torch.compiler.config.patch(cache_key_tag=tagged))
        yield


def leave_out() -> None:
    """Called in the body of ``autograd_cache`` for a graph whose key does not contain all that
    decides what it is, or with a backward that is compiled only when it is first needed: the entry
    would have to hold it."""
    config.bundled_autograd_cache = False
