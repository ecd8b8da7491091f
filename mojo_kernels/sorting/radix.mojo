"""Keys whose unsigned order is the values' order, and what is done digit by digit of them: a
stable sort (least significant digit first) and selection (most significant digit first).

NaN is the greatest value, and -0.0 equals 0.0.
"""

from std.memory import bitcast
from std.sys import size_of
from std.utils.numerics import isnan

from ..core.memory import Address, untracked

comptime DIGITS = 256
# Up to here an insertion sort is faster.
comptime SHORT = 48


def key_type[dtype: DType]() -> DType:
    """The unsigned integer of a dtype's size."""
    comptime size = size_of[Scalar[dtype]]()
    comptime if size == 1:
        return DType.uint8
    elif size == 2:
        return DType.uint16
    elif size == 4:
        return DType.uint32
    else:
        return DType.uint64


@always_inline
def key_of[
    dtype: DType, //, descending: Bool
](value: Scalar[dtype]) -> Scalar[key_type[dtype]()]:
    """An unsigned integer: the smaller, the earlier the value stands."""
    comptime Key = Scalar[key_type[dtype]()]
    comptime top = Key(1) << Key(8 * size_of[Key]() - 1)
    var key: Key
    comptime if dtype.is_floating_point():
        var bits = bitcast[key_type[dtype]()](value)
        # A shift of the sign over the whole word flips negative values without a branch.
        var mask = (Key(0) - (bits >> Key(8 * size_of[Key]() - 1))) | top
        key = bits ^ mask
        if isnan(value):
            key = ~Key(0)
        elif value == 0:
            key = top
    elif dtype.is_signed():
        key = bitcast[key_type[dtype]()](value) ^ top
    else:
        key = bitcast[key_type[dtype]()](value)
    comptime if descending:
        key = ~key
    return key


@always_inline
def value_of[
    dtype: DType, //, descending: Bool
](key: Scalar[key_type[dtype]()], origin: Address[dtype], at: Int) -> Scalar[
    dtype
]:
    """The value of a key; `origin[at]` where zeros and NaN have lost their own bits."""
    comptime Key = Scalar[key_type[dtype]()]
    comptime top = Key(1) << Key(8 * size_of[Key]() - 1)
    var plain = key
    comptime if descending:
        plain = ~plain
    comptime if dtype.is_floating_point():
        if plain == ~Key(0) or plain == top:
            return origin[unsafe_offset=at]
        var mask = ((plain >> Key(8 * size_of[Key]() - 1)) - Key(1)) | top
        return bitcast[dtype](plain ^ mask)
    elif dtype.is_signed():
        return bitcast[dtype](plain ^ top)
    else:
        return bitcast[dtype](plain)


@always_inline
def _starts(counts: Address[DType.int64], n: Int) -> Bool:
    """Makes counts of digits where each digit starts; False if all `n` have the same digit."""
    var start = Int64(0)
    for digit in range(DIGITS):
        var count = counts[unsafe_offset=digit]
        if count == Int64(n):
            return False
        counts[unsafe_offset=digit] = start
        start += count
    return True


def _insertion_sort[
    dtype: DType, //, descending: Bool
](source: Address[dtype], n: Int, values: Address[dtype], indices: Address[DType.int64]):
    """What `radix_sort` does, for so few that its counts would cost more."""
    var pairs = indices.unsafe_bitcast[UInt64]()
    for at in range(n):
        var key = key_of[descending](source[unsafe_offset=at])
        var pair = (UInt64(key) << 32) | UInt64(at)
        var to = at
        while to > 0 and pairs[unsafe_offset = to - 1] > pair:
            pairs[unsafe_offset=to] = pairs[unsafe_offset = to - 1]
            to -= 1
        pairs[unsafe_offset=to] = pair
    for at in range(n):
        var pair = pairs[unsafe_offset=at]
        var place = Int(pair & 0xFFFFFFFF)
        var key = (pair >> 32).cast[key_type[dtype]()]()
        values[unsafe_offset=at] = value_of[descending](key, source, place)
        indices[unsafe_offset=at] = Int64(place)


def radix_sort[
    dtype: DType, //, descending: Bool
](
    source: Address[dtype],
    n: Int,
    values: Address[dtype],
    indices: Address[DType.int64],
    spare_values: Address[dtype],
    spare_indices: Address[DType.int64],
):
    """The `n` values of `source` in order, and where they stood; stable.

    Up to 32 bits, key and position share a word, kept in the memory for indices.
    """
    comptime size = size_of[Scalar[dtype]]()
    comptime KeyType = key_type[dtype]()
    comptime Key = Scalar[KeyType]
    comptime if size <= 4:
        if n <= SHORT:
            _insertion_sort[descending](source, n, values, indices)
            return
    var counts = Array[Int64, size * DIGITS](fill=0)
    var cp = untracked(Pointer(to=counts).unsafe_bitcast[Int64]())
    var from_i = indices.unsafe_bitcast[UInt64]()
    var to_i = spare_indices.unsafe_bitcast[UInt64]()
    var from_k = values.unsafe_bitcast[UInt64]()
    var to_k = spare_values.unsafe_bitcast[UInt64]()
    for at in range(n):
        var key = key_of[descending](source[unsafe_offset=at])
        comptime for digit in range(size):
            cp[
                unsafe_offset=digit * DIGITS
                + Int((key >> Key(8 * digit)) & Key(255))
            ] += 1
        comptime if size <= 4:
            from_i[unsafe_offset=at] = (UInt64(key) << 32) | UInt64(at)
        else:
            from_k[unsafe_offset=at] = UInt64(key)
            from_i[unsafe_offset=at] = UInt64(at)
    comptime for digit in range(size):
        var starts = cp.unsafe_offset(digit * DIGITS)
        if _starts(starts, n):
            comptime if size <= 4:
                for at in range(n):
                    var pair = from_i[unsafe_offset=at]
                    var bucket = Int((pair >> UInt64(32 + 8 * digit)) & 255)
                    var place = starts[unsafe_offset=bucket]
                    starts[unsafe_offset=bucket] = place + 1
                    to_i[unsafe_offset=Int(place)] = pair
            else:
                for at in range(n):
                    var key = from_k[unsafe_offset=at]
                    var bucket = Int((key >> UInt64(8 * digit)) & 255)
                    var place = starts[unsafe_offset=bucket]
                    starts[unsafe_offset=bucket] = place + 1
                    to_k[unsafe_offset=Int(place)] = key
                    to_i[unsafe_offset=Int(place)] = from_i[unsafe_offset=at]
                swap(from_k, to_k)
            swap(from_i, to_i)
    for at in range(n):
        var pair = from_i[unsafe_offset=at]
        var place: UInt64
        var key: Key
        comptime if size <= 4:
            place = pair & 0xFFFFFFFF
            key = (pair >> 32).cast[KeyType]()
        else:
            place = pair
            key = from_k[unsafe_offset=at].cast[KeyType]()
        values[unsafe_offset=at] = value_of[descending](key, source, Int(place))
        indices[unsafe_offset=at] = Int64(place)
    _ = counts


@always_inline
def radix_select[
    dtype: DType, //
](source: Address[dtype], n: Int, step: Int, rank: Int) -> Tuple[Int, Int]:
    """Where the value of 0-based `rank` in a stable ascending sort stands, and how many values
    are smaller. `n` values from `source` on, `step` apart. Uses no memory but the stack's."""
    comptime size = size_of[Scalar[dtype]]()
    comptime Key = Scalar[key_type[dtype]()]
    var prefix = Key(0)
    var left = rank
    comptime for i in range(size):
        comptime shift = 8 * (size - 1 - i)
        var counts = Array[Int32, DIGITS](fill=0)
        for at in range(n):
            var key = key_of[False](source[unsafe_offset=at * step])
            comptime if i == 0:
                counts[Int(key >> Key(shift))] += 1
            else:
                if (key >> Key(shift + 8)) == prefix:
                    counts[Int((key >> Key(shift)) & Key(255))] += 1
        var digit = 0
        while left >= Int(counts[digit]):
            left -= Int(counts[digit])
            digit += 1
        comptime if i == 0:
            prefix = Key(digit)
        else:
            prefix = (prefix << Key(8)) | Key(digit)
    var smaller = rank - left
    for at in range(n):
        if key_of[False](source[unsafe_offset=at * step]) == prefix:
            if left == 0:
                return (at, smaller)
            left -= 1
    return (0, smaller)


@always_inline
def before[
    dtype: DType, //, descending: Bool
](a: Scalar[dtype], b: Scalar[dtype]) -> Bool:
    """Whether `a` has to stand before `b`."""
    comptime if descending:
        comptime if dtype.is_floating_point():
            if isnan(a) or isnan(b):
                return isnan(a) and not isnan(b)
        return a > b
    else:
        comptime if dtype.is_floating_point():
            if isnan(a) or isnan(b):
                return isnan(b) and not isnan(a)
        return a < b
