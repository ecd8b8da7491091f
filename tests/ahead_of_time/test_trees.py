"""Structures as JSON: those of the standard library come back as they were."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from typing import Any

import pytest
from torch.utils import _pytree as pytree

from torch_max_backend.ahead_of_time.plain import from_plain, to_plain
from torch_max_backend.ahead_of_time.trees import dumped, loaded


@pytest.mark.parametrize(
    "tree",
    [
        1,
        None,
        (),
        {"a": [1, (2, None)], "b": {}},
        {1: 2, "x": 3},
        OrderedDict(b=1, a=[2]),
        defaultdict(list, {"a": 1}),
        deque([1, 2]),
    ],
    ids=repr,
)
def test_structures_come_back(tree: Any) -> None:
    spec = pytree.tree_structure(tree)
    found = json.loads(json.dumps(dumped(spec, "results")))
    assert loaded(found, "results") == spec


def test_dataclasses_come_back() -> None:
    from torch_max_backend.graph.signature_schema import Layout, ModelInput, Output, Signature

    signature = Signature(
        3,
        symbols={"d0": (1, -1)},
        inputs=[ModelInput("tensor", 1, order=(1, 0)), ModelInput("scalar", source="d0 + 1")],
        outputs=[Output("none"), Output("value", 0, layout=Layout((0, 1), sizes=("d0", "3")))],
        copy_back=[(0, 1)],
        checks=[("d0 > 1", "message")],
    )
    found = json.loads(json.dumps(to_plain(signature)))
    assert from_plain(Signature, found) == signature
    for name, value in (("symbols", {"d0": [1]}), ("bank", 3), ("copy_back", [[0, True]])):
        with pytest.raises(ValueError, match=name):
            from_plain(Signature, {**found, name: value})
