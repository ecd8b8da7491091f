"""What recurrent layers share: the loops over their steps, forwards and backwards, the split of the
work among threads, and the products by the weights, which are packed once for all steps."""

from std.math import ceildiv
from std.memory import Pointer
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store

from ..core.memory import Address, Untracked, untracked
from ..core.team import sync_parallelize
from ..core.vectors import below
from ..gemm.blas import Gemm, tasks_for
from ..gemm.panels import DEPTH, WIDE, Matrix, left_size, pack, packed_product
from ..mathematics.elementary import exp

# Rows of the batch from which panels are worth what packing costs, and steps.
comptime ROWS = 4
comptime STEPS = 3
# Units of a stripe are a multiple of this.
comptime STRIPE = 16


@always_inline
def sigmoid[dtype: DType, width: SIMDLength, //](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """As programs compute it."""
    return 1 / (1 + exp(-x))


@always_inline
def some[
    dtype: DType, //, width: Int = simd_width_of[dtype]()
](place: Address[dtype], count: Int) -> SIMD[dtype, width]:
    """The next numbers, at most `count`; zeros fill up the vector."""
    if count >= width:
        return place.unsafe_load[width=width](0)
    return masked_load[width](place, below[width](count), SIMD[dtype, width](0))


@always_inline
def put[
    dtype: DType, width: Int, //
](place: Address[dtype], v: SIMD[dtype, width], count: Int):
    """Writes the first `count` numbers of a vector, or all."""
    if count >= width:
        place.unsafe_store[width=width](0, v)
    else:
        masked_store[width](v, place, below[width](count))


@always_inline
def copy[dtype: DType, //](to: Address[dtype], source: Address[dtype], count: Int):
    comptime width = simd_width_of[dtype]()
    for i in range(0, count, width):
        put(to.unsafe_offset(i), some(source.unsafe_offset(i), count - i), count - i)


@always_inline
def copy_or_zero[
    dtype: DType, //
](to: Address[dtype], source: Address[dtype], given: Bool, count: Int):
    """A gradient that is not given is 0."""
    if given:
        copy(to, source, count)
    else:
        for i in range(count):
            to[unsafe_offset=i] = 0


@fieldwise_init
struct Split(TrivialRegisterPassable):
    """How the work of all steps is split: where `by_rows`, each task does all steps of some rows of
    the batch; elsewhere some units of all rows, and waits for the others at each step."""

    var by_rows: Bool
    var tasks: Int
    # Rows or units of a task.
    var size: Int

    @staticmethod
    def of(steps: Int, batch: Int, units: Int, step: Int) -> Split:
        """The split of `steps` that cost so many multiplications each."""
        var stripes = tasks_for(ceildiv(units, STRIPE), step)
        if batch >= ROWS and steps >= STEPS:
            var rows = tasks_for(batch // ROWS, steps * step)
            # Many threads and few rows: stripes keep more of them busy.
            if 2 * rows >= stripes:
                var size = ceildiv(batch, rows)
                return Split(True, ceildiv(batch, size), size)
        var size = ceildiv(ceildiv(units, stripes), STRIPE) * STRIPE
        return Split(False, ceildiv(units, size), size)


@fieldwise_init
struct Packed[dtype: DType](TrivialRegisterPassable):
    """A matrix `[depth, columns]` in panels, one stretch of its rows after the other."""

    var panels: Pointer[Scalar[Self.dtype], Untracked]
    var depth: Int
    var columns: Int

    @staticmethod
    @always_inline
    def size(depth: Int, columns: Int) -> Int:
        """Numbers that the panels take."""
        comptime panel = WIDE * simd_width_of[Self.dtype]()
        return ceildiv(columns, panel) * panel * depth + panel

    @always_inline
    def stretch(self) -> Int:
        """Rows of a stretch."""
        return max(1, ceildiv(self.depth, max(1, ceildiv(self.depth, DEPTH))))

    @always_inline
    def space(self, rows: Int) -> Int:
        """Numbers that `multiply` needs space for."""
        return left_size(rows, self.stretch()) + simd_width_of[Self.dtype]()

    @always_inline
    def at(self, row: Int) -> Address[Self.dtype]:
        """The panels of the stretch that begins with a row."""
        comptime panel = WIDE * simd_width_of[Self.dtype]()
        var place = row * ceildiv(self.columns, panel) * panel
        return untracked(self.panels.unsafe_offset(place))

    def fill(self, matrix: Matrix[Self.dtype]):
        """Copies a matrix into the panels."""
        comptime panel = WIDE * simd_width_of[Self.dtype]()
        var panels = ceildiv(self.columns, panel)
        var tasks = tasks_for(panels, self.depth * self.columns)
        var share = ceildiv(panels, tasks) * panel
        var packed = self

        def work(task: Int) {var packed, var matrix, var share}:
            var first = task * share
            var columns = min(share, packed.columns - first)
            if columns <= 0:
                return
            for p in range(0, packed.depth, packed.stretch()):
                var rows = min(packed.stretch(), packed.depth - p)
                var to = packed.at(p).unsafe_offset(first * rows)
                pack[panel](to, matrix.from_(p, first).turned(), columns, rows)

        sync_parallelize(work, tasks)

    @always_inline
    def multiply(
        self,
        rows: Int,
        left: Address[Self.dtype],
        row: Int,
        to: Address[Self.dtype],
        to_row: Int,
        space: Address[Self.dtype],
        added: Bool,
    ):
        """Writes `[rows, columns]`, the product with the lines `left`, to lines that lie `to_row`
        apart, or adds it to what is there."""
        var lines = Matrix(left, row, 1)
        for p in range(0, self.depth, self.stretch()):
            var depth = min(self.stretch(), self.depth - p)
            packed_product(
                rows,
                self.columns,
                depth,
                lines.from_(0, p),
                space,
                self.at(p),
                to,
                to_row,
                added or p > 0,
            )


@fieldwise_init
struct Shape(TrivialRegisterPassable):
    """`steps` of a `batch` of states of `size` units; `backwards` in time or not."""

    var steps: Int
    var batch: Int
    var size: Int
    var backwards: Bool

    @always_inline
    def time(self, step: Int) -> Int:
        """Where the inputs and results of a step are."""
        return self.steps - 1 - step if self.backwards else step

    @always_inline
    def plane(self) -> Int:
        """Numbers of a state of the whole batch."""
        return self.batch * self.size


trait Layer(Deinitable, ImplicitlyCopyable, RegisterPassable):
    """The steps of a layer."""

    comptime of: DType
    comptime parts: Int
    """Lines of units that a state's product with the weights has."""

    def state(self, step: Int) -> Address[Self.of]:
        """The hidden state after a step, `[batch, size]`; step -1 is before the first."""
        ...

    def gates(self, step: Int) -> Address[Self.of]:
        """Where the products go, the lines of a row `4 * size` apart from the next row's."""
        ...

    def finish(self, step: Int, begin: Int, end: Int, first: Int, last: Int):
        """Makes the new state of the products, for rows `begin` to `end` and units `first` to
        `last`."""
        ...


def forwards[
    L: Layer, //
](layer: L, weight: Address[L.of], shape: Shape, gemm: Gemm):
    """All steps of a layer, with weights `[parts * size, size]`."""
    comptime parts = L.parts
    var size = shape.size
    var split = Split.of(shape.steps, shape.batch, size, parts * shape.plane() * size)
    if split.by_rows:
        var panels = List[Scalar[L.of]](
            unsafe_uninit_length=Packed[L.of].size(size, parts * size)
        )
        var packed = Packed[L.of](
            untracked(panels.unsafe_ptr()), size, parts * size
        )
        packed.fill(Matrix(weight, 1, size))
        var each = packed.space(split.size)
        var space = List[Scalar[L.of]](unsafe_uninit_length=each * split.tasks)
        var sp = untracked(space.unsafe_ptr())

        def rows(task: Int) {var layer, var packed, var shape, var split, var sp, var each}:
            var size = shape.size
            var begin = task * split.size
            var end = min(begin + split.size, shape.batch)
            for step in range(shape.steps):
                packed.multiply(
                    end - begin,
                    layer.state(step - 1).unsafe_offset(begin * size),
                    size,
                    layer.gates(step).unsafe_offset(begin * 4 * size),
                    4 * size,
                    sp.unsafe_offset(task * each),
                    False,
                )
                layer.finish(step, begin, end, 0, size)

        sync_parallelize(rows, split.tasks)
        _ = panels^
        _ = space^
        return
    for step in range(shape.steps):

        def stripe(task: Int) {var layer, var weight, var shape, var gemm, var split, var step}:
            var size = shape.size
            var first = task * split.size
            var last = min(first + split.size, size)
            # A task that has all units takes all lines at once.
            var lines = 1 if split.tasks == 1 else L.parts
            var previous = gemm.begin()
            for part in range(lines):
                var row = part * size + first
                gemm.multiply(
                    shape.batch,
                    L.parts * size if lines == 1 else last - first,
                    size,
                    layer.state(step - 1),
                    size,
                    False,
                    weight.unsafe_offset(row * size),
                    size,
                    True,
                    layer.gates(step).unsafe_offset(row),
                    4 * size,
                )
            gemm.end(previous)
            layer.finish(step, 0, shape.batch, first, last)

        sync_parallelize(stripe, split.tasks)


trait Gradient(Deinitable, ImplicitlyCopyable, RegisterPassable):
    """The gradients of a layer's steps."""

    comptime of: DType
    comptime parts: Int
    """Lines of units that a state's product with the weights has."""
    comptime adds: Bool
    """Whether a state reaches the next one past the weights, too."""

    def state(self) -> Address[Self.of]:
        """The gradient of the hidden state at hand, `[batch, size]`."""
        ...

    def products(self, step: Int) -> Address[Self.of]:
        """The gradients of the products of a step, `[batch, parts * size]`."""
        ...

    def derive(self, step: Int, begin: Int, end: Int, first: Int, last: Int):
        """Makes the gradients of a step's products of that of its state, for rows `begin` to `end`
        and units `first` to `last`; what reaches the state before past the weights stays in
        `state`."""
        ...


def backwards[
    G: Gradient, //
](gradient: G, weight: Address[G.of], shape: Shape, gemm: Gemm):
    """The gradients of all steps, the last one first, with weights `[parts * size, size]`."""
    comptime parts = G.parts
    var size = shape.size
    var split = Split.of(shape.steps, shape.batch, size, parts * shape.plane() * size)
    if split.by_rows:
        var panels = List[Scalar[G.of]](
            unsafe_uninit_length=Packed[G.of].size(parts * size, size)
        )
        var packed = Packed[G.of](
            untracked(panels.unsafe_ptr()), parts * size, size
        )
        packed.fill(Matrix(weight, size, 1))
        var each = packed.space(split.size)
        var space = List[Scalar[G.of]](unsafe_uninit_length=each * split.tasks)
        var sp = untracked(space.unsafe_ptr())

        def rows(task: Int) {var gradient, var packed, var shape, var split, var sp, var each}:
            var size = shape.size
            var begin = task * split.size
            var end = min(begin + split.size, shape.batch)
            for turn in range(shape.steps):
                var step = shape.steps - 1 - turn
                gradient.derive(step, begin, end, 0, size)
                packed.multiply(
                    end - begin,
                    gradient.products(step).unsafe_offset(begin * G.parts * size),
                    G.parts * size,
                    gradient.state().unsafe_offset(begin * size),
                    size,
                    sp.unsafe_offset(task * each),
                    G.adds,
                )

        sync_parallelize(rows, split.tasks)
        _ = panels^
        _ = space^
        return
    # A unit's gradient needs those of all products of the step after: one wait a step.
    for turn in range(shape.steps + 1):

        def stripe(task: Int) {var gradient, var weight, var shape, var gemm, var split, var turn}:
            var size = shape.size
            var step = shape.steps - 1 - turn
            var first = task * split.size
            var last = min(first + split.size, size)
            if turn > 0:
                var previous = gemm.begin()
                gemm.multiply(
                    shape.batch,
                    last - first,
                    G.parts * size,
                    gradient.products(step + 1),
                    G.parts * size,
                    False,
                    weight.unsafe_offset(first),
                    size,
                    False,
                    gradient.state().unsafe_offset(first),
                    size,
                    G.adds,
                )
                gemm.end(previous)
            if step >= 0:
                gradient.derive(step, 0, shape.batch, first, last)

        sync_parallelize(stripe, split.tasks)
