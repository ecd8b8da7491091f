"""From a trace to a plan, with what stands in the way as an error of ours."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from torch_max_backend.engines.steps.planner.plan import Plan
from torch_max_backend.engines.steps.planner.refusals import NotPlanned
from torch_max_backend.errors import ConversionError, MaxBackendError, StepsError
from torch_max_backend.graph.trace import Trace


def planned(trace: Trace) -> Plan:
    """The plan of a trace.

    Raises:
        ConversionError: A lowering or the planner failed.
        StepsError: An operation has no step.
    """
    from torch_max_backend.engines.steps.planner.planning import plan_of
    from torch_max_backend.engines.steps.planner.reader import graph_of
    from torch_max_backend.graph.describe import describe_call, where
    from torch_max_backend.process.compile_slots import build_lock

    try:
        with build_lock:
            graph = graph_of(trace)
        return plan_of(graph)
    except NotPlanned as e:
        refused = e.all
        failed = StepsError(
            "The steps engine cannot run this graph:",
            *(
                f"  {reason}"
                if node is None
                else f"  {describe_call(node)}: {reason}\n{where(node) or ''}"
                for node, reason in refused
            ),
            'Leave out engine="steps", or set engine="max".',
        )
        failed.refused = tuple((node, reason) for node, reason in refused if node is not None)
        raise failed from e
    except MaxBackendError:
        raise
    except Exception as e:
        raise ConversionError(
            f"The steps engine failed to plan this graph: {type(e).__name__}: {e}",
            "This is a defect of torch_max_backend: please report it, with the script that "
            "torch_max_backend.debug.repro writes.",
            'Until it is mended: engine="max".',
        ) from e


def on_cpu(module: GraphModule) -> bool:
    """Whether all tensors of a graph are on CPU."""
    import torch

    return all(
        v.device.type == "cpu"
        for node in module.graph.nodes
        for v in _tensors(node.meta.get("val"), torch.Tensor)
    )


def _tensors(value: object, kind: type) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [v for v in value if isinstance(v, kind)]
    return [value] if isinstance(value, kind) else []
