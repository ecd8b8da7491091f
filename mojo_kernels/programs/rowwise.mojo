"""Programs as functions of whole rows: rows of a table that name what such a function reads and
writes.

The words that `torch_max_backend.engines.steps.rowwise.section` makes are at the place that word 18
of a row tells: `HEAD` words, the sizes of the dims of rows, and for each operand where its address
is in the table, the bytes from a column to the next one, and its strides in bytes. Long rows that
are not reduced are cut.
"""

from std.memory import Pointer, unsafe_stack_allocation
from std.utils.index import IndexList

from ..core.memory import untracked
from ..core.team import sync_parallelize
from .operations import Bytes, kept, number_from, stored, wide
from .table_row import DIMS, Words, address, tasks_of_row

# Rows one after the other: the addresses of the first one's operands, the bytes from each row to the
# next, rows, columns.
comptime Lines = def(Words, Words, Int64, Int64) thin abi("C") -> None

# Words of the head: 0 dims of rows, 1 operands, 2 columns, 3 columns of a piece, 4 pieces of a row,
# 5 pieces of all rows, 6 tasks at most.
comptime HEAD = 7
# Words of an operand, without strides.
comptime OPERAND = 2
# The most operands.
comptime OPERANDS = 64


@always_inline
def address_of(at: Words, steps: Words, row: Int64, operand: Int) -> Bytes:
    """The address of an operand of a row."""
    return address(at[unsafe_offset=operand] + row * steps[unsafe_offset=operand])


@always_inline
def everywhere[dtype: DType, w: Int](p: Bytes) -> SIMD[wide[dtype](), w]:
    """A vector of what a row has one of."""
    comptime memory = stored[dtype]()
    return SIMD[wide[dtype](), w](
        number_from[dtype](p.unsafe_bitcast[Scalar[memory]]()[])
    )


@always_inline
def put_one[computed: DType, //, dtype: DType](p: Bytes, value: Scalar[computed]):
    """Writes what a row has one of."""
    comptime memory = stored[dtype]()
    p.unsafe_bitcast[Scalar[memory]]().unsafe_store(0, kept[dtype](value))


@no_inline
def _pieces(row: Words, first: Int, end: Int, function: Int64):
    var part = row.unsafe_offset(Int(row[unsafe_offset=18]))
    var dims = Int(part[])
    var operands = Int(part[unsafe_offset=1])
    var columns = Int(part[unsafe_offset=2])
    var length = Int(part[unsafe_offset=3])
    var several = Int(part[unsafe_offset=4])
    var sizes = part.unsafe_offset(HEAD)
    var entries = sizes.unsafe_offset(dims)
    var entry = OPERAND + dims
    var index = IndexList[DIMS](0)
    var piece = first % several
    var rest = first // several
    for d in range(dims - 1, -1, -1):
        index[d] = rest % Int(sizes[unsafe_offset=d])
        rest = rest // Int(sizes[unsafe_offset=d])
    # Where the row begins, and the piece; the bytes to the next row.
    var starts = untracked(unsafe_stack_allocation[OPERANDS, Int64]())
    var at = untracked(unsafe_stack_allocation[OPERANDS, Int64]())
    var steps = untracked(unsafe_stack_allocation[OPERANDS, Int64]())
    for i in range(operands):
        var words = entries.unsafe_offset(i * entry)
        var start = row[unsafe_offset = Int(words[])]
        for d in range(dims):
            start += Int64(index[d]) * words[unsafe_offset = OPERAND + d]
        starts.unsafe_store(i, start)
        steps.unsafe_store(i, words[unsafe_offset = OPERAND + dims - 1] if dims > 0 else 0)
    var place = function
    var lines = Pointer(to=place).unsafe_bitcast[Lines]()[]
    var done = first
    while done < end:
        var count = 1
        if several == 1:
            if dims > 0:
                count = min(end - done, Int(sizes[unsafe_offset = dims - 1]) - index[dims - 1])
            lines(starts, steps, Int64(count), Int64(columns))
        else:
            var begin = piece * length
            for i in range(operands):
                var step = entries[unsafe_offset = i * entry + 1]
                at.unsafe_store(i, starts[unsafe_offset=i] + Int64(begin) * step)
            lines(at, steps, 1, Int64(min(length, columns - begin)))
            piece = (piece + 1) % several
        done += count
        if piece != 0:
            continue
        for d in range(dims - 1, -1, -1):
            index[d] += count
            var last = index[d] == Int(sizes[unsafe_offset=d])
            # From the end of a dim back to its start.
            var moved = Int64(count - index[d] if last else count)
            for i in range(operands):
                var stride = entries[unsafe_offset = i * entry + OPERAND + d]
                starts.unsafe_store(i, starts[unsafe_offset=i] + moved * stride)
            if not last:
                break
            index[d] = 0
            count = 1


def run_rows(row: Words, lines: Lines):
    """Calls a function for all rows, or each piece of them."""
    var function = lines
    var place = Pointer(to=function).unsafe_bitcast[Int64]()[]
    var part = row.unsafe_offset(Int(row[unsafe_offset=18]))
    var pieces = Int(part[unsafe_offset=5])
    var tasks = tasks_of_row(Int(part[unsafe_offset=6]), pieces)
    if tasks <= 1:
        _pieces(row, 0, pieces, place)
        return

    def work(task: Int) {var row, var tasks, var pieces, var place}:
        _pieces(row, task * pieces // tasks, (task + 1) * pieces // tasks, place)

    sync_parallelize(work, tasks)
