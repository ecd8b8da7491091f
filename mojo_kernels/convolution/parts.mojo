"""How a convolution by products is cut: the channels into blocks, the windows into tiles, the outputs
into parts for tasks and these into slabs."""

from std.math import ceildiv
from std.sys import simd_width_of, size_of

from ..core.memory import Address
from ..gemm.bfloat16 import SIDE, UNIT
from ..gemm.blas import tasks_for
from ..gemm.panels import DEPTH, WIDE
from .packed import BEHIND
from .pair_tiles import padded_depth
from .planes import Layout, Shape
from .tiles import pack_rows

# Bytes of the planes and the sums of a tile of windows: half of a second-level cache.
comptime TILE = 1048576
# Outputs whose weights are in panels at a time.
comptime SLAB = 168
# Outputs for which copies of few numbers cost little beside products.
comptime OFTEN = 64
# What a line of a copy takes beside its vectors, in products of vectors; and what copies have to
# save, as a multiple of what they take.
comptime LINE_COST = 32
comptime LEAST_GAIN = 2
# Windows of a tile, if there are as many.
comptime FEWEST = 64


@always_inline
def _cut(shape: Shape, windows: Int, tasks: Int, most: Int, panel: Int) -> Tuple[Int, Int]:
    """Into how many tiles of windows, of at most `most`, and parts of the outputs of a group to
    cut, so that tasks have equal shares."""
    var tiles = ceildiv(windows, most)
    var units = shape.batch * shape.groups
    var cuts = 1
    # Each part of the outputs copies the image, each tile the weights.
    if shape.per_group() * shape.depth() > shape.channels() * shape.plane():
        while units * cuts * tiles % tasks != 0 and shape.per_group() // (cuts + 1) >= 16:
            cuts += 1
    while units * cuts * tiles % tasks != 0 and windows // (tiles + 1) >= FEWEST:
        tiles += 1
    if units * cuts * tiles < tasks:
        cuts = max(cuts, min(tasks // (units * tiles), shape.per_group() // 16))
    return (tiles, cuts)


@always_inline
def _taps_apart[width: Int](shape: Shape) -> Bool:
    """Whether each tap of a row gets a plane of its own. With one plane for each phase of the
    stride, windows are counted with the positions between two rows of them, which costs products;
    with one for each tap, copies."""
    var high = shape.high
    var wide = shape.wide
    var gap = wide.extent() - wide.output
    if 2 * gap >= wide.output:
        return True
    if shape.per_group() >= OFTEN and 2 * wide.output <= width:
        return True
    var products = shape.per_group() * shape.taps() * high.output * gap // width
    var lines = (wide.kernel - wide.stride) * high.stride * high.extent()
    return products > LEAST_GAIN * lines * (LINE_COST + 2 * ceildiv(wide.output, width))


@always_inline
def is_unpadded[volumes: Bool](shape: Shape) -> Bool:
    """Whether each window is one pixel, and each pixel a window."""
    var high = shape.high
    var wide = shape.wide
    var unpadded = shape.taps() * high.stride * wide.stride == 1
    unpadded = unpadded and high.padding == 0 and wide.padding == 0
    comptime if volumes:
        unpadded = unpadded and shape.deep.padding == 0
    return unpadded


struct Parts[dtype: DType, pairs: Bool, volumes: Bool](TrivialRegisterPassable):
    """How a convolution is cut, with products of `dtype`, or of pairs of bfloat16."""

    comptime tiled = Self.pairs and UNIT == "tiles"
    # Outputs of a slab; whole tiles of them.
    comptime slab_rows = SLAB // SIDE * SIDE if Self.tiled else SLAB
    comptime panel = WIDE * simd_width_of[Self.dtype]()

    # Channels of a group, or pairs of them, and those of a block.
    var channels: Int
    var block: Int
    var taps: Int
    # How planes lie, and the positions of a row of them; windows are counted so.
    var layout: Layout
    var extent: Int
    var windows: Int
    # Whether sums go where the result goes, which may not be as wide as they are.
    var dense: Bool
    # Whether the image itself holds the numbers.
    var plain: Bool
    var tasks: Int
    # Windows of a tile, and how many tiles there are.
    var tile: Int
    var tiles: Int
    # Parts of the outputs of a group, and outputs of one.
    var cuts: Int
    var slab: Int

    def __init__(out self, shape: Shape, cuts: Int = 0):
        """For tasks of equal shares; or with so many `cuts` of the outputs, unless 0."""
        comptime width = simd_width_of[Self.dtype]()
        var high = shape.high
        var wide = shape.wide
        self.taps = shape.taps()
        self.channels = shape.channels()
        comptime if Self.pairs:
            self.channels = ceildiv(self.channels, 2)
        # A tap's numbers have to be neighbours.
        self.layout = Layout(wide, _taps_apart[width](shape))
        self.extent = self.layout.extent()
        self.windows = high.output * self.extent
        self.dense = self.extent == wide.output and not Self.pairs
        var plain = not Self.pairs and is_unpadded[Self.volumes](shape)
        self.plain = plain and wide.output == wide.input and high.output <= high.input
        # Whole channels at a time.
        var block = max(1, min(DEPTH // self.taps, self.channels))
        block = ceildiv(self.channels, ceildiv(self.channels, block))
        comptime if Self.tiled:
            if self.taps == 1:
                # Whole tiles of weights are read where they lie.
                block = min(padded_depth(block), self.channels)
        if Self.volumes and self.plain:
            # The slices of a channel are as far apart as those of any other.
            block = ceildiv(block, shape.deep.kernel) * shape.deep.kernel
        self.block = block
        self.tasks = tasks_for(shape.batch * shape.outputs * shape.pixels(), shape.cost())
        var copies = 0 if self.plain else block * high.stride * self.layout.planes()
        var most = TILE // size_of[Scalar[Self.dtype]]()
        most //= copies + min(shape.per_group(), Self.slab_rows)
        most = max(FEWEST, most // Self.panel * Self.panel)
        var cut = _cut(shape, self.windows, self.tasks, most, Self.panel)
        self.tile = ceildiv(ceildiv(self.windows, cut[0]), Self.panel) * Self.panel
        self.tiles = ceildiv(self.windows, self.tile)
        self.cuts = cuts if cuts != 0 else cut[1]
        self.slab = ceildiv(shape.per_group(), self.cuts)

    @always_inline
    def blocks(self) -> Int:
        """Blocks of channels."""
        return ceildiv(self.channels, self.block)

    @always_inline
    def panels_size(self, shape: Shape) -> Int:
        """Numbers of the panels of all weights."""
        return shape.outputs * shape.depth() + BEHIND * shape.groups * self.cuts * self.blocks()

    @always_inline
    def panels_at(self, shape: Shape, group: Int, cut: Int, rows: Int, begun: Int) -> Int:
        """Where, among those of all weights, the panels begin of a part of the outputs, which has
        so many `rows`, and the channels from `begun` on."""
        var first = group * shape.per_group() + cut * self.slab
        var number = (group * self.cuts + cut) * self.blocks() + begun // self.block
        return first * shape.depth() + rows * begun * self.taps + BEHIND * number

    def pack(self, to: Address[Self.dtype], wp: Address[Self.dtype], shape: Shape):
        """Makes the panels of all weights."""
        for group in range(shape.groups):
            for cut in range(self.cuts):
                var first = group * shape.per_group() + cut * self.slab
                var rows = min(self.slab, shape.per_group() - cut * self.slab)
                for begun in range(0, self.channels, self.block):
                    var steps = min(self.block, self.channels - begun) * self.taps
                    if rows > 0:
                        pack_rows(
                            to.unsafe_offset(self.panels_at(shape, group, cut, rows, begun)),
                            wp.unsafe_offset(first * shape.depth() + begun * self.taps),
                            shape.depth(),
                            rows,
                            steps,
                        )
