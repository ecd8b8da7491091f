"""Many programs through the real ``torch.compile(..., backend=max_backend)`` for one MAX compile.

Each program runs once with every graph executed by torch, so that all graphs are known; these are
planned for the steps engine, or compiled as one MAX module; from then on the backend finds each
graph's plan or model by its cache key. A graph that was not seen before fails the test, so these
tests also notice recompilations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from tests.conformance.program import Program


@dataclass
class Case:
    """A program under test.

    Attributes:
        make: Makes the function or module, the same one each time.
        calls: Makes the argument lists of the calls to collect graphs from.
        dynamic: As ``torch.compile`` takes it.
        backward: Whether the calls run a backward pass.
        fullgraph: As ``torch.compile`` takes it.
    """

    make: Callable[[], Callable[..., Any]]
    calls: Callable[[], list[tuple[Any, ...]]]
    dynamic: bool | None = False
    backward: bool = False
    fullgraph: bool = True


@dataclass
class Script:
    """A program that compiles functions itself, for instance to train with them.

    Attributes:
        run: Takes what compiles, which has the arguments of ``torch.compile`` but for the backend.
    """

    run: Callable[[Callable[..., Any]], Any]


class Precompiled:
    """The plans or models of the graphs of some programs.

    Args:
        cases: The programs, by name.
        scripts: Others, that compile functions themselves.
        engine: ``"steps"`` or ``"max"``.
        compiled: What has MAX compile their graphs; by default, one module of them.

    Attributes:
        loaded: How many graphs torch.compile has asked for since it was last set to 0.
    """

    def __init__(
        self,
        cases: Mapping[str, Case],
        scripts: Iterable[Script] = (),
        engine: str = "steps",
        compiled: Callable[[Sequence[Program]], None] | None = None,
    ) -> None:
        self.cases = cases
        self.engine = engine
        self.loaded = 0
        self._traces: dict[str, Any] = {}
        self._models: dict[str, Any] = {}
        for case in cases.values():
            self._collect(case)
        for script in scripts:
            # What fails here fails again in the script's own test.
            with self._collecting(), contextlib.suppress(Exception):
                self.run(script)
        if engine == "steps":
            self._plan()
        else:
            self._compile(compiled)

    def compiled(self, name: str) -> Callable[..., Any]:
        """The compiled function of a program; to be called inside ``serving``."""
        case = self.cases[name]
        return self.compile(case.make(), case.dynamic, case.fullgraph)

    def compile(
        self, function: Callable[..., Any], dynamic: bool | None = False, fullgraph: bool = True
    ) -> Callable[..., Any]:
        """Another function with the graphs of a program; to be called inside ``serving``."""
        return _compiled(function, dynamic, fullgraph)

    def run(self, script: Script) -> Any:
        """What a script returns; to be called inside ``serving``."""
        from torch_max_backend import max_backend

        torch._dynamo.reset()
        return script.run(partial(torch.compile, backend=max_backend))

    def eager(self, name: str) -> Callable[..., Any]:
        """The program itself."""
        return self.cases[name].make()

    def arguments(self, name: str) -> tuple[Any, ...]:
        """Fresh arguments of the program's first call."""
        return self.cases[name].calls()[0]

    @contextlib.contextmanager
    def serving(self) -> Iterator[Precompiled]:
        """In the body, the backend uses the models compiled here and compiles nothing."""

        def load(entry: str) -> Any:
            if entry not in self._models:
                pytest.fail("torch.compile asks for a graph that was not collected")
            self.loaded += 1
            return {entry: self._models[entry]}

        self.loaded = 0
        with self._patched("torch_max_backend.driver.job.stored_models", load):
            yield self

    @contextlib.contextmanager
    def _patched(self, name: str, value: Any) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name, value)
            patch.setenv("TORCH_MAX_BACKEND_CACHE", "1")
            patch.setenv("TORCH_MAX_BACKEND_ENGINE", self.engine)
            # AOTAutograd's own cache would answer in place of the backend.
            with torch._functorch.config.patch(enable_autograd_cache=False):
                yield

    @contextlib.contextmanager
    def _collecting(self) -> Iterator[None]:
        interpreted = self._interpreted
        with (
            self._patched("torch_max_backend.backend.compile_graph", interpreted),
            self._patched(
                "torch_max_backend.backend.start", lambda *a: Interpreted(interpreted(*a))
            ),
        ):
            yield

    def _collect(self, case: Case) -> None:
        with self._collecting():
            function = _compiled(case.make(), case.dynamic, case.fullgraph)
            for arguments in case.calls():
                result = function(*arguments)
                if case.backward:
                    result.sum().backward()

    def _interpreted(
        self,
        module: GraphModule,
        static: Collection[int],
        options: Any,
        exact: int | None = None,
    ) -> Any:
        from functorch.compile import make_boxed_func

        from torch_max_backend.cache.key import cache_key, components
        from torch_max_backend.driver.passes import prepare
        from torch_max_backend.driver.unit import CompiledGraph

        with _disable_current_modes():
            trace = prepare(module, exact=exact)
            entry = cache_key({**components(trace), "engine": self.engine})
        self._traces[entry] = trace

        run = make_boxed_func(module.forward)
        return CompiledGraph(run, entry, trace.signature, {}, static)

    def _plan(self) -> None:
        from torch_max_backend.driver.passes import own_modes
        from torch_max_backend.engines.steps.planned import planned
        from torch_max_backend.engines.steps.serialize import deserialized, serialized

        with own_modes():
            # As the next process finds them.
            self._models = {
                entry: deserialized(serialized(planned(trace)))
                for entry, trace in self._traces.items()
            }

    def _compile(self, compiled: Callable[[Sequence[Program]], None] | None) -> None:
        from tests.conformance.modules import compile_module_of
        from tests.conformance.program import Program

        programs = {e: Program(e, _traced, (), trace=trace) for e, trace in self._traces.items()}
        (compiled or compile_module_of)(list(programs.values()))
        for entry, program in programs.items():
            if program.error is not None:
                raise program.error
            self._models[entry] = program.model


def _traced(*tensors: torch.Tensor) -> Any:
    raise AssertionError("only the trace of a program that was collected is there")


@cache
def whole_programs_by_max() -> Precompiled:
    """The cases of the test modules that run in one worker, in one module of MAX's, together with
    what ``test_by_max.py`` chooses: a module costs 30 CPU seconds, and each family of kernels in it
    5 to 15, however many graphs there are."""
    from tests import test_compiler
    from tests.conformance.test_by_max import compile_chosen_with
    from tests.engines.max import test_executable
    from tests.ops import test_higher_order

    modules = (test_compiler, test_executable, test_higher_order)
    cases = {name: case for module in modules for name, case in module.CASES.items()}
    assert len(cases) == sum(len(module.CASES) for module in modules), "two cases have one name"
    return Precompiled(cases, engine="max", compiled=compile_chosen_with)


@dataclass
class Interpreted:
    """In the place of the pipeline's ``Job``: a graph that torch executes."""

    made: Any

    def graph(self, function: Any) -> Any:
        return replace(self.made, function=function)

    def functions(self, *others: Interpreted) -> list[Any]:
        return [job.made.function for job in (self, *others)]


def _compiled(
    function: Callable[..., Any], dynamic: bool | None, fullgraph: bool
) -> Callable[..., Any]:
    from torch_max_backend import max_backend

    torch._dynamo.reset()
    return torch.compile(function, backend=max_backend, fullgraph=fullgraph, dynamic=dynamic)
