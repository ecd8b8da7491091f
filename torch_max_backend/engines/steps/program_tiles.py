"""Into which tiles the space of a program is cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from torch_max_backend.engines.steps.program_space import Space
from torch_max_backend.engines.steps.programs import Program, itemsize

# Elements of a block of what has no instructions, and bytes of blocks of what has.
_PLAIN, _CACHE = 16384, 28672
# Elements of a block that only passes by, the most first, and how many of them there are at least.
_PASSING, _TILES = (65536, 32768, 16384), 32

# Columns of rows that are reduced in one tile.
_WHOLE = 16384


def longest(program: Program, dtypes: Sequence[str], space: Space) -> int:
    """Elements of a block, so that what is live stays in the first cache; a whole row at least
    where one is reduced, if it is not too long.

    Args:
        program: The program.
        dtypes: Of its values.
        space: Its space.
    """
    found = _longest(program, dtypes, space.inputs, math.prod(space.sizes))
    if program.reductions and space.kept == len(space.sizes) - 1 and space.sizes[-1] <= _WHOLE:
        # A function of whole rows needs no blocks, but adds up as if it had these.
        return max(found, space.sizes[-1])
    return found


def _longest(
    program: Program, dtypes: Sequence[str], inputs: Sequence[Sequence[int]], count: int
) -> int:
    if not program.instructions:
        return _PLAIN
    # What is read or written once only passes by, the halves of a pair together.
    reads = Counter(o for i in program.instructions if i.name != "second" for o in i.operands)
    kept = [
        itemsize(dtypes[i])
        for i, strides in enumerate(inputs)
        if reads[i] > 1 or (any(strides) and not all(strides))
    ]
    base = len(inputs)
    results = [
        itemsize(instruction.dtype)
        for k, instruction in enumerate(program.instructions)
        if instruction.name != "constant" and reads[base + k]
    ]
    live = sum(kept) + sum(sorted(results)[-3:])
    if live == 0:
        # Nothing stays: a tile's own words are what the next one has to fetch again.
        return next((n for n in _PASSING if n * _TILES <= count), 8192)
    return next((n for n in (8192, 4096, 2048, 1024) if n * live <= _CACHE), 512)


def tiles_of(
    sizes: Sequence[int],
    inputs: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    length: int,
    reduced: int | None = None,
) -> tuple[list[int], bool]:
    """The sizes of tiles, and whether they cross rows that lie in another order.

    Args:
        sizes: Of the space.
        inputs: Strides of the inputs.
        outputs: Strides of the outputs.
        length: Elements of a tile at most.
        reduced: The dim that is reduced across the last one, of which tiles have all, if one is.
    """
    last = len(sizes) - 1
    tiles = [1] * len(sizes)
    if reduced is not None:
        tiles[last] = sizes[last]
        tiles[reduced] = _even(sizes[reduced], max(1, length // max(1, sizes[last])), 1)
        return tiles, False
    strided = _across(sizes, [*inputs, *outputs])
    if strided is not None:
        side = 64 if length == _PLAIN else 32
        tiles[strided] = min(sizes[strided], side)
        tiles[last] = _even(sizes[last], max(1, length // tiles[strided]), 16)
        tiles[strided] = _even(sizes[strided], max(1, length // tiles[last]), 16)
        return tiles, True
    count = 1
    for i in range(last, -1, -1):
        if i < last and count >= 256 and _has_columns(inputs, i):
            break
        if count * sizes[i] <= length:
            tiles[i] = sizes[i]
            count *= max(1, sizes[i])
            continue
        tiles[i] = _even(sizes[i], max(1, length // count), 64 if i == last else 1)
        break
    return tiles, False


def _has_columns(inputs: Sequence[Sequence[int]], dim: int) -> bool:
    """Whether an input varies along a dim and not inside of it."""
    return any(s[dim] and not any(s[dim + 1 :]) for s in inputs)


def _across(sizes: Sequence[int], operands: Sequence[Sequence[int]]) -> int | None:
    """A dim along which an operand lies in its order, if it does not along the last."""
    last = len(sizes) - 1
    if last < 1 or sizes[last] < 4:
        return None
    found = None
    for strides in operands:
        if abs(strides[last]) <= 1:
            continue
        for i in range(last):
            if strides[i] == 1 and sizes[i] >= 4 and strides[last] * sizes[last] >= 64:
                found = i
    return found


def _even(size: int, most: int, multiple: int) -> int:
    """How large parts of a size are, at most ``most``; a multiple if they are several."""
    if size <= most:
        return size
    part = -(-size // -(-size // most))
    return min(most, -(-part // multiple) * multiple)
