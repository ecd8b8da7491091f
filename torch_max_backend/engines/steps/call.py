"""The code of a call: for given sizes, Python that does what a table needs and nothing else.

Loops over arguments and results cost more than the steps of a small graph, so the calls of each
table are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from torch_max_backend.compat.tensors import empty_strided, profiling
from torch_max_backend.engines.steps.packs import version_of
from torch_max_backend.engines.steps.runner import PAUSED, block_runner
from torch_max_backend.graph.views import Call
from torch_max_backend.runtime import large


def written_out(
    moving: Sequence[tuple[int, int, tuple[int, ...] | None]],
    static: Sequence[int],
    packed: Sequence[int],
    words: tuple[Mapping[int, Sequence[tuple[int, int]]], Sequence[Sequence[tuple[int, int]]]],
    results: Sequence[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]],
    turns: Sequence[tuple[int, ...] | None],
    outputs: Sequence[tuple[str, int]],
    views: Mapping[int, Sequence[Call]],
    free: list[Any],
    shares: bool,
    general: Callable[[list[Any]], list[Any]],
    new_table: Callable[[], Any],
    bind_static: Callable[[Any, list[Any], list[int]], None],
    error: Callable[[Any, int, list[Any]], Exception],
) -> Callable[[list[Any]], list[Any]]:
    """The function of one call.

    Args:
        moving: Of each input whose memory differs from call to call its number, the position of
            its argument, and the order in which its dims are taken.
        static: Positions of arguments whose memory rarely changes.
        packed: Positions of those whose contents rarely change.
        words: The words of the table that hold addresses in each input and each result.
        results: Sizes, strides and dtype of each result.
        turns: Of each result the order of its dims in the tensor that torch is given.
        outputs: Kind and number of each output of the graph.
        views: Of those that are views of arguments, the calls that take them.
        free: Tables that no call uses.
        shares: Whether the table takes memory for temporaries at each call.
        general: Does what this code cannot: tensors that are not contiguous, profiling.
        new_table: Makes a table.
        bind_static: Writes the addresses of ``static`` arguments to a table.
        error: The exception of a row that failed.
    """
    names: dict[str, Any] = {
        "empty": empty_strided, "large": large.empty, "free": free, "general": general,
        "new_table": new_table, "bind_static": bind_static, "error": error, "run": block_runner(),
        "profiling": profiling, "address": torch.Tensor.data_ptr,
    }  # fmt: skip
    lines = ["def call(arguments):", "    if profiling():", "        return general(arguments)"]
    for n, (_, index, order) in enumerate(moving):
        turn = "" if order is None else f".permute({order})"
        lines.append(f"    t{n} = arguments[{index}]{turn}")
        lines.append(f"    if not t{n}.is_contiguous() or t{n}.is_neg():")
        lines.append("        return general(arguments)")
    lines += ["    try:", "        table = free.pop()"]
    lines += ["    except IndexError:", "        table = new_table()", "    words = table.words"]
    if static:
        # One object of C for all: this is done at each call.
        names["pick"] = _several(static)
        lines.append("    known = [*map(address, pick(arguments))]")
        if packed:
            names["picked"], names["version"] = _several(packed), version_of
            lines.append("    known += map(version, picked(arguments))")
        lines.append("    if known != table.known:")
        lines.append("        bind_static(table, arguments, known)")
    for n, (k, _, _) in enumerate(moving):
        lines += _written(f"t{n}", words[0].get(k, ()))
    for k, (shape, strides, dtype) in enumerate(results):
        names[f"dtype{k}"] = dtype
        make = "large" if large.is_large(shape, dtype) else "empty"
        lines.append(f"    r{k} = {make}({shape}, {strides}, dtype{k})")
        lines += _written(f"r{k}", words[1][k])
    if shares:
        lines.append("    arena = table.enter()")
    lines += ["    failed = run(table.block)", f"    while failed == {PAUSED}:"]
    lines.append("        failed = run(table.block)")
    if shares:
        lines.append("    del arena")
    # Its text is the table's, which another call may take.
    lines += ["    problem = error(table, failed, arguments) if failed >= 0 else None"]
    lines += ["    free.append(table)", "    if problem is not None:", "        raise problem"]
    lines += [f"    r{k} = r{k}.permute({t})" for k, t in enumerate(turns) if t is not None]
    made = ", ".join(_outputs(outputs, views))
    lines += [f"    found = [{made}]", "    arguments.clear()", "    return found"]
    exec("\n".join(lines), names)
    return names["call"]


def _several(positions: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """What takes some arguments of all."""
    pick = itemgetter(*positions)
    return pick if len(positions) > 1 else lambda arguments: (pick(arguments),)


def _outputs(
    outputs: Sequence[tuple[str, int]], views: Mapping[int, Sequence[Call]]
) -> Iterator[str]:
    for k, (kind, i) in enumerate(outputs):
        text = f"r{i}" if kind == "value" else f"arguments[{i}]" if kind == "input" else "None"
        for name, numbers in views.get(k, ()):
            text += f".{name}({', '.join(map(str, numbers))})"
        yield text


def _written(name: str, places: Sequence[tuple[int, int]]) -> list[str]:
    if len(places) == 1 and places[0][1] == 0:
        return [f"    words[{places[0][0]}] = {name}.data_ptr()"]
    lines = [f"    p = {name}.data_ptr()"] if places else []
    return lines + [f"    words[{w}] = p + {o}" if o else f"    words[{w}] = p" for w, o in places]
