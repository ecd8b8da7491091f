"""The autograd function that AOTAutograd (2.15) makes of a graph for training, by a shorter way.

AOTAutograd's forward and backward go through twenty Python functions, for graphs that write to
their arguments, wrap tensors, or draw random numbers. What is made here derives from that
function and calls the two compiled graphs itself where nothing of that applies, with everything
that can be seen of it the same: what is saved, and how it is checked, which results have
gradients, and how those are laid out. Whatever only a call can tell (gradients of gradients, a
graph that is kept, ``torch.func``) goes to AOTAutograd's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_max_backend.compat.autograd_wrappers import without_autocast
from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._C import _are_functorch_transforms_active as transforms_active
    from torch._C import _get_deterministic_algorithms as deterministic
    from torch._C import _get_obj_in_tls, _is_key_in_tls
    from torch._C._autograd import _get_current_graph_task_keep_graph as keeps_graph
    from torch._dynamo.eval_frame import innermost_fn, skip_code
    from torch._functorch._aot_autograd import runtime_wrappers

_grad_enabled = torch.is_grad_enabled
_unsafe_view = torch.ops.aten._unsafe_view.default

# Metadata that is empty, false or 0 of each graph that is called by the shorter way.
_NOTHING_OF = (
    "grad_enabled_mutation",
    "indices_of_inputs_that_requires_grad_with_mutations_in_bw",
    "is_rng_op_functionalized",
    "mutated_graph_handled_indices_seen_by_autograd",
    "mutated_inp_runtime_indices",
    "num_backward_tokens",
    "num_graphsafe_rng_states",
    "num_intermediate_bases",
    "num_opaque_objects_saved_for_bw",
    "num_outputs_aliased",
    "tokens",
)


def shorter(
    apply: Callable[..., Any], failures: tuple[type[Exception], ...]
) -> Callable[..., Any] | None:
    """``apply`` of AOTAutograd's function of a graph, by a shorter way.

    Args:
        apply: That of AOTAutograd, which has been called once.
        failures: What a compiled graph raises where its ``__call__`` knows how to go on.

    Returns:
        What takes the same arguments and returns the same, while no transform of ``torch.func`` is
        active (``transforms_active``) and as long as it raises none of ``failures``; ``None`` if
        there is more to do than to call the two graphs, or if this torch does it otherwise.
    """
    whole: Any = getattr(apply, "__self__", None)
    try:
        plain = whole.boxed_grads_call and not (
            whole.maybe_subclass_metadata is not None
            or any(getattr(whole.metadata, name) for name in _NOTHING_OF)
        )
        if not plain:
            return None
        made = _shorter(whole, failures)
    except (AttributeError, TypeError):
        return None
    # That of C: Python's own only looks for transforms.
    found: Callable[..., Any] = super(torch.autograd.Function, made).apply
    return found


def _shorter(whole: Any, failures: tuple[type[Exception], ...]) -> Any:
    # Under autocast, AOTAutograd calls the graphs while that is off.
    autocast_off = "_DisableAutocast_" in whole._fwd_fn.__code__.co_names
    forward = _forward(whole, autocast_off)
    backward = _backward(whole, autocast_off, failures)
    # It runs wherever the user's backward pass does, where Dynamo may look at each function.
    skip_code(backward.__code__)
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(whole.__name__, (whole,), body)


def _forward(whole: Any, autocast_off: bool) -> Callable[..., Any]:
    metadata = whole.metadata
    graph = _Graph(whole.compiled_fw, autocast_off)
    count = metadata.num_forward_returns
    checked = metadata.tensors_saved_for_backwards_with_vc_check_slice
    unchecked = metadata.tensors_saved_for_backwards_no_vc_check_slice
    symbols = metadata.symints_saved_for_backwards_slice
    arguments_first = list(metadata.saved_tensor_is_graph_input)
    mark = runtime_wrappers.mark_dynamo_propagated_dynamic_indices
    dynamic = list(metadata.dynamic_saved_tensors_idxs.items())
    views = list(metadata.unsafe_view_out_indices)
    constants = [i for i, info in enumerate(metadata.output_info) if not info.requires_grad]

    def forward(ctx: Any, *arguments: Any) -> tuple[Any, ...]:
        results = (graph.settled or graph.now())([*arguments])
        saved = results[checked]
        kept = results[unchecked]
        if saved:
            saved = _alone(saved, arguments_first)
        if kept:
            kept = _alone(kept, arguments_first[len(saved) :])
        for i, dims in dynamic:
            mark(saved[i] if i < len(saved) else kept[i - len(saved)], dims)
        if saved:
            ctx.save_for_backward(*saved)
        ctx._tensors_no_vc_check = kept
        ctx.symints = results[symbols]
        ctx.opaque_objects = ()
        ctx._materialize_non_diff_grads = False
        returned = results[:count]
        for i in views:
            if returned[i]._is_view():
                returned[i] = _unsafe_view(returned[i], returned[i].shape)
        if constants:
            ctx.mark_non_differentiable(
                *[returned[i] for i in constants if isinstance(returned[i], Tensor)]
            )
        return tuple(returned)

    return forward


def _alone(tensors: Sequence[Tensor], are_arguments: Sequence[bool]) -> list[Tensor]:
    """Tensors as AOTAutograd saves them: views that the graph has made are detached."""
    return [
        x if own or not x._is_view() else x.detach()
        for x, own in zip(tensors, are_arguments, strict=False)
    ]


def _backward(
    whole: Any, autocast_off: bool, failures: tuple[type[Exception], ...]
) -> Callable[..., Any]:
    metadata = whole.metadata
    # Which gradients the graph takes, and how they are laid out in it.
    taken = [
        i
        for i, info in enumerate(metadata.output_info)
        if info.output_type.name in ("non_alias", "unsafe_view_alias", "custom_function_view")
        and issubclass(info.raw_type, Tensor)
        and info.requires_grad_for_backward
    ]
    layouts = [
        (i, format.memory_format, format.size, format.stride)
        for i, format in zip(
            taken, [meta.memory_format for meta in metadata.subclass_tangent_meta], strict=True
        )
    ]
    count = len(metadata.output_info)
    graph = _Graph(whole.compiled_bw, autocast_off)

    def backward(ctx: Any, *flat: Any) -> tuple[Any, ...]:
        if (
            (graph.code is None and not graph.learn(whole.compiled_bw))
            or _grad_enabled()
            or keeps_graph()
            or transforms_active()
            or deterministic()
            or _dynamo_looks()
            or len(flat[0]) != count
        ):
            result: tuple[Any, ...] = whole.backward(ctx, *flat)
            return result
        gradients = flat[0]
        arguments = [*ctx.symints, *ctx.saved_tensors, *ctx._tensors_no_vc_check]
        for i, memory_format, size, stride in layouts:
            x = gradients[i]
            if type(x) is not Tensor:
                return whole.backward(ctx, *flat)
            if memory_format is not None:
                x = x.contiguous(memory_format=memory_format)
            elif x.stride() != stride or x.shape != size:
                x = torch.empty_strided(size, stride, dtype=x.dtype, device=x.device).copy_(x)
            arguments.append(x)
        # Each is dropped as soon as the graph has used it.
        gradients.clear()
        x = None
        ctx.maybe_clear_saved_tensors()
        call = graph.settled or graph.now()
        # The variables of the context that asked for gradients, maybe in another thread.
        context = _get_obj_in_tls("context") if _is_key_in_tls("context") else None
        try:
            results = call(arguments) if context is None else context.copy().run(call, arguments)
        except failures:
            assert graph.code is not None, "it has just been called"
            results = graph.code(arguments)
        return tuple(results)

    return backward


class _Graph:
    """A compiled graph.

    Attributes:
        code: It, without what keeps Dynamo from looking at it; ``None`` until it is compiled.
        settled: What to call instead of it, once that stays as it is.
    """

    def __init__(self, compiled: Any, autocast_off: bool) -> None:
        self.code: Callable[..., Any] | None = None
        self.settled: Callable[..., Any] | None = None
        self._graph: Any = None
        self._autocast_off = autocast_off
        self._looks = 64
        self.learn(compiled)

    def learn(self, compiled: Any) -> bool:
        """Whether it is compiled."""
        if compiled is not None:
            self._graph = innermost_fn(compiled)
            self.code = self._alone(self._graph)
        return compiled is not None

    def now(self) -> Callable[..., Any]:
        """What to call until that is settled, which is looked for in some first calls."""
        assert self.code is not None, "only what is compiled is called"
        direct: Callable[..., Any] | None = getattr(self._graph, "direct", None)
        found = self.code if direct is None else self._alone(direct)
        self._looks -= 1
        if direct is not None or not self._looks:
            self.settled = found
        return found

    def _alone(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return without_autocast(call) if self._autocast_off else call


_dynamo_looks = torch._C._dynamo.eval_frame.get_eval_frame_callback

__all__ = ["shorter", "transforms_active"]
