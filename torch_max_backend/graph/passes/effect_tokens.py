"""Operators that AOTAutograd keeps in order by tokens, as plain nodes.

An operator with an effect, such as the check that raises for a matrix without a factorization,
arrives as ``with_effects(token, operator, ...)``, so that no pass reorders or removes it. MAX keeps
such operators itself.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node

_PLAIN = frozenset(
    {
        torch.ops.aten._linalg_check_errors.default,
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
    }
)
_TOKENS = frozenset({torch.ops.prims._make_token.default, torch.ops.prims._sink_tokens.default})


def inline_effects(module: GraphModule) -> None:
    """Call operators that return nothing without tokens; others stay as they are."""
    found = [n for n in module.graph.nodes if _is_plain_effect(n)]
    for node in found:
        token, target, *arguments = node.args
        with module.graph.inserting_before(node):
            plain = module.graph.call_function(target, tuple(arguments), dict(node.kwargs))
        plain.meta = {**node.meta, "val": None}
        for user in list(node.users):
            if user.args[1] == 0:
                user.replace_all_uses_with(token)
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    if not found or any(_has_effects(n) for n in module.graph.nodes):
        return
    for node in reversed(module.graph.nodes):
        if node.target in _TOKENS and not node.users:
            module.graph.erase_node(node)


def _has_effects(node: Node) -> bool:
    return node.target is torch.ops.higher_order.with_effects


def _is_plain_effect(node: Node) -> bool:
    return (
        _has_effects(node)
        and node.args[1] in _PLAIN
        and all(
            u.target is operator.getitem and (u.args[1] == 0 or not u.users) for u in node.users
        )
    )
