"""Indices, checked before any thread uses them."""

from std.math import ceildiv

from .memory import Address, untracked
from .team import sync_parallelize, task_count

comptime GRAIN = 65536


def check_range(index: Address[DType.int64], count: Int, start: Int, size: Int) raises:
    """Raises unless each of `count` indices is from `start` up to and without `size`."""
    comptime width = 8
    var tasks = task_count(count, count, GRAIN)
    var chunk = ceildiv(count, tasks)
    var found = List[Int](length=tasks, fill=-1)
    var fp = untracked(found.unsafe_ptr())

    def work(task: Int) {var index, var count, var start, var size, var chunk, var fp}:
        var at = task * chunk
        var end = min(count, at + chunk)
        while at + width <= end:
            var block = index.unsafe_load[width=width](at)
            if (block.lt(Int64(start)) | block.ge(Int64(size))).reduce_or():
                break
            at += width
        while at < end:
            var one = Int(index[unsafe_offset=at])
            if one < start or one >= size:
                fp[unsafe_offset=task] = at
                return
            at += 1

    sync_parallelize(work, tasks)
    for task in range(tasks):
        if found[task] >= 0:
            raise Error(
                "index ",
                index[unsafe_offset=found[task]],
                " is out of bounds for a dimension of size ",
                size,
            )
    _ = found^
