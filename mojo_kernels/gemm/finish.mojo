"""What follows the sums of a product on their way to the result."""

from std.sys import simd_width_of

from ..core.memory import Address
from ..core.rounding import to_memory
from .activations import ACTIVATIONS, NONE, activated, activation_name

# Numbers between the rows of sums that are rounded later: rows a whole page apart would be in each
# other's way in the first cache.
comptime GAP = 16


@always_inline
def finish_line[
    dtype: DType, sum: DType, //
](
    to: Address[dtype],
    line: Address[sum],
    bias: Address[dtype],
    biased: Bool,
    activation: Int,
    columns: Int,
):
    """`to = activation(line + bias)`, for a part of a row; numbers that are no floats have no
    activation."""
    comptime for kind in range(ACTIVATIONS if sum.is_floating_point() else NONE + 1):
        if activation == kind:
            _finish_line[activation_name(kind)](to, line, bias, biased, columns)


@no_inline
def _finish_line[
    dtype: DType, sum: DType, //, activation: StaticString
](
    to: Address[dtype],
    line: Address[sum],
    bias: Address[dtype],
    biased: Bool,
    columns: Int,
):
    comptime width = simd_width_of[sum]()
    var j = 0
    while j + width <= columns:
        var v = line.unsafe_load[width=width](j)
        if biased:
            v += bias.unsafe_load[width=width](j).cast[sum]()
        to.unsafe_store[width=width](j, to_memory[dtype](activated[activation](v)))
        j += width
    while j < columns:
        var v = line.unsafe_load[width=1](j)
        if biased:
            v += bias.unsafe_load[width=1](j).cast[sum]()
        to.unsafe_store[width=1](j, to_memory[dtype](activated[activation](v)))
        j += 1
