"""A stretch of pixels of a convolution's weight gradient: some outputs by some taps, as dot products of
what lies in memory, or, where there are enough of both, in panels as matrix products."""

from std.math import ceildiv
from std.memory import Pointer
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load

from ..core.memory import Address, Untracked, untracked
from ..core.vectors import MANY_REGISTERS, below, totals
from ..gemm.panels import WIDE, Matrix, pack_left, tiles, transpose

# Outputs and taps of a tile of dot products.
comptime DOWN = 4 if MANY_REGISTERS else 3
comptime ACROSS = 6 if MANY_REGISTERS else 4
# Taps of a tile where a group has few outputs.
comptime ALONE = 9
# Outputs whose gradients are in panels at a time.
comptime SLAB = 168


@fieldwise_init
struct Stretch[dtype: DType](TrivialRegisterPassable):
    """Some pixels of some images: the gradients of the outputs there, and the planes of what taps
    meet, each tap's from its place in `begins` on."""

    var gradient: Pointer[Scalar[Self.dtype], Untracked]
    var planes: Pointer[Scalar[Self.dtype], Untracked]
    var begins: Pointer[Int, Untracked]
    var images: Int
    var pixels: Int
    # From one output to the next, and from one image to the next.
    var row: Int
    var gradient_image: Int
    var plane_image: Int

    @always_inline
    def line(self, output: Int) -> Address[Self.dtype]:
        """The gradients of an output in the first image."""
        return untracked(self.gradient.unsafe_offset(output * self.row))

    @always_inline
    def met(self, tap: Int) -> Address[Self.dtype]:
        """What a tap meets in the first image."""
        return untracked(self.planes.unsafe_offset(self.begins[unsafe_offset=tap]))


@no_inline
def _dots[
    dtype: DType, //, down: Int, across: Int
](
    of: Stretch[dtype],
    output: Int,
    tap: Int,
    rows: Int,
    columns: Int,
    to: Address[dtype],
    to_row: Int,
    added: Bool,
):
    """The gradients of up to `down` outputs for up to `across` taps; `added` to what is there."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    comptime part = min(width, 8)
    comptime size = ceildiv(down * across, part) * part
    var sums = Array[Some, size](fill=Some(0))
    var left = Array[Address[dtype], down](fill=of.line(output))
    comptime for r in range(down):
        left[r] = of.line(output + min(r, rows - 1))
    var right = Array[Address[dtype], across](fill=of.met(tap))
    comptime for s in range(across):
        right[s] = of.met(tap + min(s, columns - 1))
    var whole = of.pixels // width * width
    var inside = below[width](of.pixels - whole)
    for image in range(of.images):
        var from_left = image * of.gradient_image
        var from_right = image * of.plane_image
        for q in range(0, whole, width):
            var factors = Array[Some, down](fill=Some(0))
            comptime for r in range(down):
                factors[r] = left[r].unsafe_load[width=width](from_left + q)
            comptime for s in range(across):
                var v = right[s].unsafe_load[width=width](from_right + q)
                comptime for r in range(down):
                    sums[r * across + s] = factors[r].fma(v, sums[r * across + s])
        if whole < of.pixels:
            var factors = Array[Some, down](fill=Some(0))
            comptime for r in range(down):
                var place = left[r].unsafe_offset(from_left + whole)
                factors[r] = masked_load[width](place, inside, Some(0))
            comptime for s in range(across):
                var place = right[s].unsafe_offset(from_right + whole)
                var v = masked_load[width](place, inside, Some(0))
                comptime for r in range(down):
                    sums[r * across + s] = factors[r].fma(v, sums[r * across + s])
    var found = Array[Scalar[dtype], size](fill=0)
    comptime for i in range(0, size, part):
        var some = totals[part](sums, i)
        comptime for j in range(part):
            found[i + j] = some[j]
    for r in range(rows):
        for s in range(columns):
            var place = r * to_row + s
            var v = found[r * across + s]
            to[unsafe_offset=place] = to[unsafe_offset=place] + v if added else v


@always_inline
def tiles_by_dots[
    dtype: DType, //
](
    of: Stretch[dtype],
    outputs: Int,
    taps: Int,
    to: Address[dtype],
    to_row: Int,
    added: Bool,
):
    """The gradients of some outputs for some taps, in rows of `to`, which lie `to_row` apart."""
    var r = 0
    while r < outputs:
        if outputs - r >= 2:
            var count = min(DOWN, outputs - r)
            for s in range(0, taps, ACROSS):
                var into = to.unsafe_offset(r * to_row + s)
                var some = min(ACROSS, taps - s)
                _dots[DOWN, ACROSS](of, r, s, count, some, into, to_row, added)
            r += count
        else:
            for s in range(0, taps, ALONE):
                var into = to.unsafe_offset(r * to_row + s)
                var some = min(ALONE, taps - s)
                _dots[1, ALONE](of, r, s, 1, some, into, to_row, added)
            r += 1


@always_inline
def panels_size[dtype: DType](taps: Int, depth: Int) -> Int:
    """Numbers of what taps meet in panels, and of a slab of gradients behind them."""
    comptime panel = WIDE * simd_width_of[dtype]()
    return (ceildiv(taps, panel) * panel + SLAB + DOWN) * depth + panel


@no_inline
def _pack_met[
    dtype: DType, //
](to: Address[dtype], of: Stretch[dtype], tap: Int, columns: Int):
    """Copies what up to a panel's width of taps meet, side by side for each pixel."""
    comptime width = simd_width_of[dtype]()
    comptime panel = WIDE * width
    for image in range(of.images):
        var from_ = image * of.plane_image
        for chunk in range(0, panel, width):
            for q in range(0, of.pixels, width):
                var count = of.pixels - q
                var rows = Array[SIMD[dtype, width], width](fill=SIMD[dtype, width](0))
                comptime for j in range(width):
                    if chunk + j < columns:
                        var place = of.met(tap + chunk + j).unsafe_offset(from_ + q)
                        if count >= width:
                            rows[j] = place.unsafe_load[width=width](0)
                        else:
                            rows[j] = masked_load[width](
                                place, below[width](count), SIMD[dtype, width](0)
                            )
                transpose(rows)
                var sink = to.unsafe_offset((image * of.pixels + q) * panel + chunk)
                if count >= width:
                    comptime for j in range(width):
                        sink.unsafe_store[width=width](j * panel, rows[j])
                else:
                    comptime for j in range(width):
                        if j < count:
                            sink.unsafe_store[width=width](j * panel, rows[j])


@no_inline
def tiles_by_panels[
    dtype: DType, //
](
    of: Stretch[dtype],
    outputs: Int,
    taps: Int,
    to: Address[dtype],
    to_row: Int,
    added: Bool,
    space: Address[dtype],
):
    """As `tiles_by_dots`, with `panels_size` numbers of space."""
    comptime panel = WIDE * simd_width_of[dtype]()
    var depth = of.images * of.pixels
    for j in range(0, taps, panel):
        _pack_met(space.unsafe_offset(j * depth), of, j, min(panel, taps - j))
    var left = space.unsafe_offset(ceildiv(taps, panel) * panel * depth)
    for i in range(0, outputs, SLAB):
        var rows = min(SLAB, outputs - i)
        var lines = Matrix(of.line(i), of.row, 1)
        pack_left(left, lines, rows, of.pixels, of.images, of.gradient_image)
        for j in range(0, taps, panel):
            tiles(
                rows,
                min(panel, taps - j),
                depth,
                left,
                space.unsafe_offset(j * depth),
                panel,
                to.unsafe_offset(i * to_row + j),
                to_row,
                added,
                lines,
                0,
            )
