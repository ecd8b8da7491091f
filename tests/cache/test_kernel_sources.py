"""No result of Mojo sources or lowerings that have changed since comes from a cache."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.interpreters import run_python
from torch_max_backend import Refusal, map_to, mojo_op
from torch_max_backend.registry.lowerings import Lowering, registry

pytestmark = pytest.mark.xdist_group("compile-1")

KERNEL = """
from extensibility import InputTensor, OutputTensor, foreach, register
from layout import Coord
from max.gpu.host import DeviceContext


@register("NAME")
struct Add:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[output.dtype, width]:
            return x.load[width](at) + NUMBER

        foreach[target=target](body, output, ctx)
"""

# Compiles one graph for each way to name sources, all as one module, and then asks torch.compile
# for each. In the place of MAX's compiler stands one whose models add what the sources say.
PROGRAM = """
import json, re, sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
import torch
from max.driver import Buffer
from max.graph import TensorType, ops
from torch._dynamo.utils import counters
from tests.support.module_cache import kept_compiles
from torch_max_backend import map_to, max_backend, mojo_op
from torch_max_backend.driver.job import job_of
from torch_max_backend.registry import kernel_sources
from torch_max_backend.engines.max import loading, module

here, text = Path(sys.argv[1]), sys.argv[2]

def mojo(name, source):
    return mojo_op(f"sources::{name}(Tensor x) -> Tensor", source, fake=torch.empty_like,
                   kernel="add")

def told(x):
    return here / ("package" if x.ndim == 1 else "other")

def mapped(name, kernels, kernel):
    op = torch.library.custom_op(f"sources::{name}", lambda x: x.clone(), mutates_args=(),
                                 schema="(Tensor x) -> Tensor")
    op.register_fake(torch.empty_like)
    @map_to(op._opoverload, kernels=kernels)
    def lowering(x):
        return ops.custom(kernel, x.device, [x], [TensorType(x.dtype, x.shape, x.device)])[0].tensor
    return op

operators = {
    "text": mojo("text", text),
    "callable": mapped("callable", told, "packed"),
}
x = torch.zeros(4)
counts = {"compiled": 0, "precompiled": 0}
texts = {}
kept = kept_compiles()
kept.__enter__()
made = kernel_sources.precompile

def precompile(sources, out):
    counts["precompiled"] += 1
    texts[out.name] = "".join(file.read_text() for file in sources.rglob("*.mojo"))
    made(sources, out)

def compile_module(module, libraries, *what):
    counts["compiled"] += 1
    text = "".join(texts.get(library.name, "") for library in libraries)
    return re.search(r"x.load\\[width\\]\\(at\\) \\+ (\\d+)", text)[1].encode()

def load(artifact):
    add = lambda buffers: [Buffer.from_dlpack(torch.from_dlpack(buffers[0]) + int(artifact))]
    return [SimpleNamespace(_execute_device_tensors=add)]

kernel_sources.precompile = precompile
module.compile_module, module.serialized = compile_module, bytes
loading.load_models = loading.load_serialized = load

def compiled(op):
    return torch.compile(lambda x: op(x), backend=max_backend, fullgraph=True)(x)

jobs = []

def collect(graph, static, options):
    jobs.append(job_of(graph, static, options))
    return jobs[-1].graph(lambda arguments: [torch.empty_like(a) for a in arguments])

with (
    mock.patch("torch_max_backend.backend.compile_graph", collect),
    torch._functorch.config.patch(enable_autograd_cache=False),
):
    for op in operators.values():
        compiled(op)
jobs[0].functions(*jobs[1:])
torch._dynamo.reset()
counters.clear()
values = {name: compiled(op)[0].item() for name, op in operators.items()}
found = counters["aot_autograd"]
print(json.dumps({"values": values, "traced anew": found["autograd_cache_miss"],
                  "hits": found["autograd_cache_hit"], **counts}))
"""

# A text, and a package that a function tells: in both keys the others are what
# `test_each_file_counts` checks.
FORMS = ("text", "callable")


def kernel(name: str, number: int) -> str:
    return KERNEL.replace("NAME", name).replace("NUMBER", str(number))


def run(folder: Path, number: int) -> dict[str, Any]:
    """What the program finds in a process of its own, when all sources add a number."""
    (folder / "package").mkdir(exist_ok=True)
    (folder / "package" / "__init__.mojo").write_text("from .inner import *\n")
    (folder / "package" / "inner.mojo").write_text(kernel("packed", number))
    program = folder / "program.py"
    program.write_text(PROGRAM)
    root = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = run_python(program, folder, kernel("add", number), environment=root)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_changed_sources_are_compiled_in_the_next_process(
    lent_libraries: Path, tmp_path: Path
) -> None:
    first = run(tmp_path, 2)
    assert first["values"] == dict.fromkeys(FORMS, 2.0)
    changed = run(tmp_path, 3)
    assert changed["values"] == dict.fromkeys(FORMS, 3.0)
    assert changed["hits"] == 0
    again = run(tmp_path, 3)
    assert again["values"] == dict.fromkeys(FORMS, 3.0)
    assert again["compiled"] == again["precompiled"] == 0
    # What a function tells depends on the arguments, which AOTAutograd's key does not contain.
    assert (again["hits"], again["traced anew"]) == (len(FORMS) - 1, 1)


# Everything of a lowering counts, in both keys


def own(self: Any, other: Any) -> Any:
    return self


def refuse(self: Any) -> Refusal | None:
    return Refusal("no")


def other_file(self: Any) -> Any:
    return Path(os.devnull)


HYPOT = torch.ops.aten.hypot.default
X = torch.ones(2)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Registers lowerings of ``hypot`` for the time of a test."""
    import torch_max_backend.ops  # noqa: F401

    monkeypatch.setattr(registry, "lowerings", dict(registry))
    return lambda function=own, **fields: map_to(HYPOT, override=True, **fields)(function)


def artifact_key() -> str:
    from tests.tracing import traced
    from torch_max_backend.cache.key import lowerings_digest
    from torch_max_backend.graph.signature import analyse

    return lowerings_digest(analyse(traced(torch.hypot, X, X)))


def autograd_key() -> str:
    from torch_max_backend.driver.autograd_cache import tag
    from torch_max_backend.options import Options

    return tag(Options(), [])


KEYS = pytest.mark.parametrize("key", [artifact_key, autograd_key])


@KEYS
@pytest.mark.parametrize(
    "fields",
    [
        {"supports": refuse},
        {"supports": functools.partial(refuse)},
        {"native16": True},
        {"bank": True},
        {"sizes_from_data": True},
        {"random": True},
        {"kernels": "fft.fft"},
        {"kernels": ("fft.fft", "image.resample")},
        {"kernels": other_file},
    ],
    ids=lambda fields: "-".join(
        f"{n}={getattr(v, '__name__', type(v).__name__)}" for n, v in fields.items()
    ),
)
def test_each_field_counts(
    key: Callable[[], str], fields: dict[str, Any], registered: Callable[..., None]
) -> None:
    registered()
    before = key()
    registered(**fields)
    assert key() != before
    registered()
    assert key() == before


@KEYS
@pytest.mark.parametrize("form", ["file", "folder", "tuple", "linked folder", "flame"])
def test_each_file_counts(
    key: Callable[[], str], form: str, registered: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    file = folder / "inner" / ("own.🔥" if form == "flame" else "own.mojo")
    file.write_text("one")
    if form == "linked folder":
        (tmp_path / "linking").mkdir()
        (tmp_path / "linking" / "inner").symlink_to(folder / "inner")
        folder = tmp_path / "linking"
    registered(kernels={"file": file, "tuple": ("fft", file)}.get(form, folder))
    before = key()
    file.write_text("two")
    assert key() != before
    file.write_text("one")
    assert key() == before


def test_what_a_function_tells_counts(registered: Callable[..., None], tmp_path: Path) -> None:
    file, unused = tmp_path / "own.mojo", tmp_path / "unused.mojo"
    for path in (file, unused):
        path.write_text("one")
    registered(kernels=lambda self: (file,) if self.ndim == 1 else unused)
    before = artifact_key()
    unused.write_text("two")
    assert artifact_key() == before
    file.write_text("two")
    assert artifact_key() != before


@KEYS
def test_a_mojo_op_counts(key: Callable[[], str], tmp_path: Path) -> None:
    file = tmp_path / "own.mojo"
    file.write_text("one")
    name = f"sources::counts_{key.__name__}"
    mojo_op(f"{name}(Tensor x) -> Tensor", file, fake=torch.empty_like)
    op = getattr(torch.ops.sources, f"counts_{key.__name__}").default
    digests = []
    for content in ("one", "two", "one"):
        file.write_text(content)
        digests.append(_digest(registry[op]) if key is artifact_key else key())
    registry.remove(op)
    assert digests[0] == digests[2] != digests[1]


def test_sources_that_are_gone_disturb_no_other_graph(
    registered: Callable[..., None], tmp_path: Path
) -> None:
    file = tmp_path / "own.mojo"
    file.write_text("one")
    registered(kernels=file)
    before = autograd_key()
    file.unlink()
    assert autograd_key() != before


def _digest(lowering: Lowering) -> str:
    from torch_max_backend.registry.digest import lowering_digest

    return lowering_digest(lowering)


class Told:
    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, self_: Any) -> Any:
        return self.held

    def method(self, self_: Any) -> Any:
        return self.held


def long(at: int) -> torch.Tensor:
    """A tensor of which not all is printed."""
    made = torch.zeros(5000)
    made[at] = 1
    return made


@pytest.mark.parametrize(
    "make", [Told, lambda held: Told(held).method, lambda held: functools.partial(own, held)]
)
@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), ({"a": 1}, {"a": 2}), (own, refuse), (Told(1), Told(2)), (long(2000), long(2001))],
    ids=["number", "dict", "function", "object", "tensor"],
)
def test_what_functions_hold_counts(
    make: Callable[[Any], Any], one: Any, other: Any, registered: Callable[..., None]
) -> None:
    registered()
    lowering = registry[HYPOT]
    assert _digest(replace(lowering, supports=make(one))) != _digest(
        replace(lowering, supports=make(other))
    )
    assert _digest(replace(lowering, supports=make(one))) == _digest(
        replace(lowering, supports=make(one))
    )


def test_functions_may_hold_each_other(registered: Callable[..., None]) -> None:
    def one(self: Any, other: Any) -> Any:
        return two(self, other)

    def two(self: Any, other: Any) -> Any:
        return one(self, other) if later else self

    registered(one)
    assert _digest(registry[HYPOT])  # ``later`` has no value yet
    later = True
    assert _digest(registry[HYPOT])
