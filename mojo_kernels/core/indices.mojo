"""Indices, checked before any thread uses them."""

from .memory import Address, untracked
from .team import in_numbered_ranges, task_count

comptime GRAIN = 65536


def check_range(index: Address[DType.int64], count: Int, start: Int, size: Int) raises:
    """Raises unless each of `count` indices is from `start` up to and without `size`."""
    comptime width = 8
    var tasks = task_count(count, count, GRAIN)
    var found = List[Int](length=tasks, fill=-1)
    var fp = untracked(found.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {var index, var start, var size, var fp}:
        var at = lower
        while at + width <= upper:
            var block = index.unsafe_load[width=width](at)
            if (block.lt(Int64(start)) | block.ge(Int64(size))).reduce_or():
                break
            at += width
        while at < upper:
            var one = Int(index[unsafe_offset=at])
            if one < start or one >= size:
                fp[unsafe_offset=task] = at
                return
            at += 1

    in_numbered_ranges(work, count, tasks)
    for task in range(tasks):
        if found[task] >= 0:
            raise Error(
                "index ",
                index[unsafe_offset=found[task]],
                " is out of bounds for a dimension of size ",
                size,
            )
    _ = found^
