"""Paddings that repeat what is there: MAX's `pad` by reflection and by the edge, for graphs that run
as steps."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import Address, untracked
from ..core.team import in_ranges, task_count
from ..core.vectors import copy_backwards, copy_line

# Elements of a task, and how many a line costs beyond its own.
comptime GRAIN = 32768
comptime OF_LINE = 16


@fieldwise_init
struct _Axis(TrivialRegisterPassable):
    """An axis of what is padded."""

    var size: Int
    var before: Int
    var padded: Int
    var reflects: Bool

    @always_inline
    def source(self, at: Int) -> Int:
        """Where the padded position `at` comes from."""
        var i = at - self.before
        if i >= 0 and i < self.size:
            return i
        if self.reflects:
            return -i if i < 0 else 2 * (self.size - 1) - i
        return 0 if i < 0 else self.size - 1

    @always_inline
    def write[dtype: DType, //](self, to: Address[dtype], source: Address[dtype]):
        """A padded line, of one that lies side by side."""
        var after = self.padded - self.before - self.size
        var end = to.unsafe_offset(self.before + self.size)
        if self.reflects:
            copy_backwards(to, source.unsafe_offset(self.before), self.before)
            copy_backwards(end, source.unsafe_offset(self.size - 2), after)
        else:
            for i in range(self.before):
                to[unsafe_offset=i] = source[unsafe_offset=0]
            for i in range(after):
                end[unsafe_offset=i] = source[unsafe_offset = self.size - 1]
        copy_line(to.unsafe_offset(self.before), source, 1, self.size)


@register("tmb_padded")
struct Padded:
    """The padded last three axes of `x`, whose sizes and those of `output` say how much is added
    after what `before_d`, `before_h` and `before_w` add before: the mirror image without the edge
    where `reflects` is not 0, otherwise the edge."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        before_d: Int64,
        before_h: Int64,
        before_w: Int64,
        reflects: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own padding"
        if output.size() == 0:
            return
        var mirror = reflects != 0
        var deep = _Axis(x.dim_size[1](), Int(before_d), output.dim_size[1](), mirror)
        var high = _Axis(x.dim_size[2](), Int(before_h), output.dim_size[2](), mirror)
        var wide = _Axis(x.dim_size[3](), Int(before_w), output.dim_size[3](), mirror)
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var lines = output.dim_size[0]() * deep.padded * high.padded

        def work(lower: Int, upper: Int) {var xp, var op, var deep, var high, var wide}:
            var row = lower % high.padded
            var plane = lower // high.padded % deep.padded
            var volume = lower // high.padded // deep.padded
            for line in range(lower, upper):
                var above = (volume * deep.size + deep.source(plane)) * high.size
                var source = xp.unsafe_offset((above + high.source(row)) * wide.size)
                wide.write(op.unsafe_offset(line * wide.padded), source)
                row += 1
                if row == high.padded:
                    row = 0
                    plane += 1
                    if plane == deep.padded:
                        plane = 0
                        volume += 1

        in_ranges(work, lines, task_count(lines, lines * (wide.padded + OF_LINE), GRAIN))
