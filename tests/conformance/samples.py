"""Programs from torch's own operator database (``op_db``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from tests.conformance.program import Program

OPS: dict[str, OpInfo] = {}
for _op in op_db:
    OPS[f"{_op.name}.{_op.variant_test_name}" if _op.variant_test_name else _op.name] = _op


# Dtypes asked for, which float64 stands for where the truth is asked for.
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def programs(
    name: str,
    dtype: torch.dtype,
    *,
    limit: int,
    dynamic: bool = False,
    gradients: bool = False,
) -> Iterator[Program]:
    """Up to ``limit`` sample programs of an ``op_db`` entry, spread over all its samples. Random
    ones are left out.

    Args:
        name: Name of the entry, with the variant behind a dot where it has one.
        dtype: Dtype of the samples' tensors.
        limit: How many at most.
        dynamic: Trace with symbolic sizes.
        gradients: Programs that return the gradients of those arguments that have one.
    """
    op = OPS[name]
    with warnings.catch_warnings(), _seeds_of_cpu(), _of_no_test():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=gradients))
    step = max(1, len(samples) // limit)
    for i in range(0, len(samples), step):
        # Nothing to compare with: eager draws other numbers.
        random = samples[i].kwargs.get("dropout_p", 0) > 0
        if i // step < limit and not random:
            kind = "dynamic" if dynamic else "static"
            label = f"{name}-{str(dtype).removeprefix('torch.')}-{kind}-{i}"
            call = partial(op.gradcheck_wrapper, op.get_op()) if gradients else op
            program = _program(call, samples[i], label, dynamic)
            if gradients:
                behind_sum = dtype.to_real() == torch.float64
                program.function, program.wide = gradients_of(program, behind_sum), None
            yield program


def _seeds_of_cpu() -> Any:
    """Within, seeds are set on CPU alone. Torch's samples set them each time, and to remember
    one for an accelerator that is not there formats a traceback."""
    seed = torch.default_generator.manual_seed
    return patch.object(torch.random, "_manual_seed_impl", seed, create=True)


@contextmanager
def _of_no_test() -> Iterator[None]:
    """Within, torch's samples do not look for the ``unittest`` that asks for them: at each operator
    they read the sources of all that is on the stack, which takes longer than the samples."""
    with ExitStack() as stack:
        for module in (common_utils, core):
            stack.enter_context(patch.object(module, "extract_test_fn", lambda: None))
        yield


def gradients_of(program: Program, behind_sum: bool) -> Callable[..., Any]:
    """The gradients of the sum of a program's results, weighted, where its tensors ask for them;
    behind that sum if asked, so that it has finite differences."""
    forward, asked = program.function, [t.requires_grad for t in program.tensors]

    def function(*given: torch.Tensor) -> Any:
        leaves = [t.detach().requires_grad_(ask) for t, ask in zip(given, asked, strict=True)]
        with torch.enable_grad():
            results = [
                t
                for t in pytree.tree_leaves(forward(*leaves))
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            if not results:
                return []
            sums = [(t * weights_of(t)).sum() for t in results]
            total = sum(s.real + s.imag if s.is_complex() else s for s in sums)
        wanted = [t for t in leaves if t.requires_grad]
        found = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
        return [total.detach(), *found] if behind_sum else list(found)

    return function


def weights_of(result: torch.Tensor) -> torch.Tensor:
    """Different numbers of about 1."""
    steps = torch.arange(result.numel(), device=result.device) % 7
    return ((steps + 2) / 5).reshape(result.shape).to(result.dtype)


def _program(call: Callable[..., Any], sample: SampleInput, label: str, dynamic: bool) -> Program:
    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]

    def function(*given: torch.Tensor, wide: bool = False) -> Any:
        rest = iter(given)
        filled = [next(rest) if isinstance(v, torch.Tensor) else v for v in leaves]
        if wide:
            filled = [torch.float64 if v in _NARROW else v for v in filled]
        first, args, kwargs = pytree.tree_unflatten(filled, structure)
        return sample.output_process_fn_grad(call(first, *args, **kwargs))

    return Program(label, function, tensors, dynamic, wide=partial(function, wide=True))
