"""What the transforms of one length share, and Bluestein's convolution for lengths with a large prime
factor."""

from std.memory import Pointer

from ..core.memory import Address, untracked
from .passes import LARGEST_RADIX, transform_planes
from .roots import Plan, fill_table, largest_prime, root, table_size


struct Tables[dtype: DType](TrivialRegisterPassable):
    """What the transforms of one length share, at one address: the twiddles of
    the passes; for Bluestein's convolution the chirp and the transform of its
    inverse; for real lines of even length `exp(-2 pi i k / n)`."""

    var n: Int
    # Length of the passes: `n`, or that of the convolution.
    var length: Int
    var plan: Plan
    var place: Address[Self.dtype]
    var chirp: Int
    var filter: Int
    var halves: Int
    var size: Int

    def __init__(out self, n: Int, real: Int, alone: Bool = False):
        """For transforms of `n` complex numbers, which stand for `real` real ones
        (or 0), of long lines one at a time if `alone`."""
        self.n = n
        self.length = n
        # Larger prime factors go through Bluestein's convolution.
        if largest_prime(n) > LARGEST_RADIX:
            self.length = _smooth(2 * n - 1)
        self.plan = Plan(self.length, alone)
        self.chirp = table_size(self.plan)
        var extra = 0 if self.length == n else 2 * n
        self.filter = self.chirp + extra
        extra = 0 if self.length == n else 2 * self.length
        self.halves = self.filter + extra
        self.size = self.halves + (2 * (n // 2 + 1) if real != 0 else 0)
        self.place = Address[Self.dtype](
            unsafe_from_address=8
        )

    @always_inline
    def start(self) -> Address[Self.dtype]:
        return untracked(self.place)

    @always_inline
    def convolves(self) -> Bool:
        return self.length != self.n

    def fill(mut self, at: Address[Self.dtype], scratch: Address[Self.dtype]):
        """Computes everything. `scratch` has room for four times the length."""
        self.place = untracked(at)
        fill_table(at, self.plan)
        if self.size > self.halves:
            for k in range(self.n // 2 + 1):
                self._put(self.halves, self.n // 2 + 1, k, k, 2 * self.n)
        if not self.convolves():
            return
        var n = self.n
        var m = self.length
        for j in range(n):
            self._put(self.chirp, n, j, j * j % (2 * n), 2 * n)
        var c = at.unsafe_offset(self.chirp)
        var share = 1 / Float64(m)
        for j in range(2 * m):
            scratch[unsafe_offset=j] = 0
        for j in range(n):
            var re = (c[unsafe_offset=j].cast[DType.float64]() * share).cast[Self.dtype]()
            var im = (c[unsafe_offset = n + j].cast[DType.float64]() * -share).cast[Self.dtype]()
            var mirror = (m - j) % m
            scratch[unsafe_offset=j] = re
            scratch[unsafe_offset = m + j] = im
            scratch[unsafe_offset=mirror] = re
            scratch[unsafe_offset = m + mirror] = im
        var found = transform_planes(self.plan, 1, scratch, scratch.unsafe_offset(2 * m), at)
        var filter = at.unsafe_offset(self.filter)
        for j in range(2 * m):
            filter[unsafe_offset=j] = found[unsafe_offset=j]

    @always_inline
    def _put(self, table: Int, plane: Int, at: Int, k: Int, n: Int):
        var (re, im) = root(SIMD[DType.int64, 1](Int64(k)), n)
        self.start()[unsafe_offset = table + at] = re.cast[Self.dtype]()
        self.start()[unsafe_offset = table + plane + at] = im.cast[Self.dtype]()

    @always_inline
    def transform[
        lanes: Int
    ](self, a: Address[Self.dtype], b: Address[Self.dtype]) -> Address[Self.dtype]:
        """The transform of planes `[2, n, lanes]` in `a`; returns `a` or `b`,
        whichever holds it."""
        if not self.convolves():
            return transform_planes(self.plan, lanes, a, b, self.start())
        var n = self.n
        var m = self.length
        var size = n * lanes
        var most = m * lanes
        var cr = self.start().unsafe_offset(self.chirp)
        var ci = cr.unsafe_offset(n)
        # To planes of the longer length.
        for j in range(n):
            var re = a.unsafe_load[width=lanes](j * lanes)
            var im = a.unsafe_load[width=lanes](size + j * lanes)
            var c = cr[unsafe_offset=j]
            var d = ci[unsafe_offset=j]
            b.unsafe_store(j * lanes, re * c - im * d)
            b.unsafe_store(most + j * lanes, re * d + im * c)
        for j in range(size, most):
            b[unsafe_offset=j] = 0
            b[unsafe_offset = most + j] = 0
        var x = transform_planes(self.plan, lanes, b, a, self.start())
        var other = b
        if x == b:
            other = a
        var fr = self.start().unsafe_offset(self.filter)
        var fi = fr.unsafe_offset(m)
        for j in range(m):
            var re = x.unsafe_load[width=lanes](j * lanes)
            var im = x.unsafe_load[width=lanes](most + j * lanes)
            var c = fr[unsafe_offset=j]
            var d = fi[unsafe_offset=j]
            # The planes change places: the inverse follows.
            x.unsafe_store(most + j * lanes, re * c - im * d)
            x.unsafe_store(j * lanes, re * d + im * c)
        var y = transform_planes(self.plan, lanes, x, other, self.start())
        var to = x
        if y == x:
            to = other
        for j in range(n):
            var im = y.unsafe_load[width=lanes](j * lanes)
            var re = y.unsafe_load[width=lanes](most + j * lanes)
            var c = cr[unsafe_offset=j]
            var d = ci[unsafe_offset=j]
            to.unsafe_store(j * lanes, re * c - im * d)
            to.unsafe_store(size + j * lanes, re * d + im * c)
        return to


def _smooth(least: Int) -> Int:
    """The least length from `least` on with one factor other than 2, at most 5."""
    var best = 1
    while best < least:
        best *= 2
    for odd in range(3, 6, 2):
        var length = odd
        while length < least:
            length *= 2
        best = min(best, length)
    return best
