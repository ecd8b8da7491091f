"""Random numbers that take a number of words which is not known beforehand:
permutations and counts of events."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceil, floor, sqrt

from .distributions import (
    ln,
    ln_complement,
    ln_factorial,
    minus_log_uniform,
    uniform,
)
from ..core.lines import each_line
from .philox import LANES, Stream, Words, memory

# More draws for one number than chance will ever ask for.
comptime MOST_DRAWS = 60000


@fieldwise_init
struct _Draws(ImplicitlyCopyable, RegisterPassable):
    """Uniform numbers for one element."""

    var stream: Stream
    var element: Int
    var attempt: Int

    @always_inline
    def pair(mut self) -> Words[1]:
        """Two words of 64 bits, new ones at each call."""
        self.attempt += 1
        return self.stream.again(self.element, self.attempt)

    @always_inline
    def exhausted(self) -> Bool:
        """Only for parameters that are no numbers to draw from."""
        return self.attempt >= MOST_DRAWS


@always_inline
def _unit(word: UInt64) -> Float64:
    """A uniform number in [0, 1)."""
    return uniform[DType.float64](word, 53)


def _poisson(rate: Float64, stream: Stream, element: Int) -> Float64:
    """Below 10 by counting arrivals; above by PTRS (Hoermann, "The transformed
    rejection method for generating Poisson random variables", 1993)."""
    if not rate > 0:
        return 0
    var draws = _Draws(stream, element, 0)
    if rate < 10:
        var count = Float64(0)
        var passed = Float64(0)
        while True:
            var words = draws.pair()
            passed += minus_log_uniform[DType.float64](words.first())
            if passed > rate:
                return count
            passed += minus_log_uniform[DType.float64](words.second())
            if passed > rate:
                return count + 1
            count += 2
    var b = 0.931 + 2.53 * sqrt(rate)
    var a = -0.059 + 0.02483 * b
    var inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    var bound = 0.9277 - 3.6224 / (b - 2)
    var ln_rate = ln(rate)
    while not draws.exhausted():
        var words = draws.pair()
        var u = _unit(words.first()) - 0.5
        var v = 1 - _unit(words.second())
        var us = 0.5 - abs(u)
        if us == 0:
            continue
        var k = floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= bound:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        var left = ln(v * inverse_alpha / (a / (us * us) + b))
        if left <= k * ln_rate - rate - ln_factorial(k):
            return k
    return rate


def _binomial(
    count: Float64, p: Float64, stream: Stream, element: Int
) -> Float64:
    """For p in (0, 1/2]: by gaps between hits where few are expected; else by
    BTRS (Hoermann, "The generation of binomial random variates", 1993)."""
    var draws = _Draws(stream, element, 0)
    if count * p < 10:
        var scale = -1 / ln_complement(p)
        var hits = Float64(0)
        var at = Float64(0)
        while True:
            var words = draws.pair()
            at += ceil(minus_log_uniform[DType.float64](words.first()) * scale)
            if at > count or draws.exhausted():
                return hits
            hits += 1
    var spread = sqrt(count * p * (1 - p))
    var b = 1.15 + 2.53 * spread
    var a = -0.0873 + 0.0248 * b + 0.01 * p
    var bound = 0.92 - 4.2 / b
    var alpha = (2.83 + 5.1 / b) * spread
    var ln_odds = ln(p) - ln_complement(p)
    var mode = floor((count + 1) * p)
    var at_mode = ln_factorial(mode) + ln_factorial(count - mode)
    while not draws.exhausted():
        var words = draws.pair()
        var u = _unit(words.first()) - 0.5
        var v = 1 - _unit(words.second())
        var us = 0.5 - abs(u)
        if us == 0:
            continue
        var k = floor((2 * a / us + b) * u + count * p + 0.5)
        if k < 0 or k > count:
            continue
        if us >= 0.07 and v <= bound:
            return k
        var left = ln(v * alpha / (a / (us * us) + b))
        var right = at_mode - ln_factorial(k) - ln_factorial(count - k)
        if left <= right + (k - mode) * ln_odds:
            return k
    return floor(count * p)


@register("tmb_poisson")
struct Poisson:
    """The number of events for each rate. Raises at a negative rate, on CPU."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        rate: InputTensor[dtype=dtype, rank=1, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        ctx: DeviceContext,
    ) raises:
        var n = output.size()
        var rates = memory(rate.unsafe_ptr())
        var to = memory(output.unsafe_ptr())
        comptime if target == "cpu":
            for i in range(n):
                if not rates[unsafe_offset=i] >= 0:
                    raise Error(
                        "invalid Poisson rate, expected rate to be"
                        " non-negative"
                    )
        var stream = Stream.of(seed, node, instance)

        @always_inline
        def work(i: Int) {var rates, var to, var stream}:
            var r = rates[unsafe_offset=i].cast[DType.float64]()
            to[unsafe_offset=i] = _poisson(r, stream, i).cast[dtype]()

        each_line[target=target](work, n, 200, ctx)


@register("tmb_binomial")
struct Binomial:
    """The number of hits among `count` tries of probability `prob`."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        count: InputTensor[dtype=dtype, rank=1, ...],
        prob: InputTensor[dtype=dtype, rank=1, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        ctx: DeviceContext,
    ) raises:
        var counts = memory(count.unsafe_ptr())
        var probs = memory(prob.unsafe_ptr())
        var to = memory(output.unsafe_ptr())
        var stream = Stream.of(seed, node, instance)

        @always_inline
        def work(i: Int) {var counts, var probs, var to, var stream}:
            var n = counts[unsafe_offset=i].cast[DType.float64]()
            var p = probs[unsafe_offset=i].cast[DType.float64]()
            var hits = p  # NaN, if nothing below applies
            if n <= 0 or p <= 0:
                hits = 0
            elif p >= 1:
                hits = n
            elif p <= 0.5:
                hits = _binomial(n, p, stream, i)
            elif p > 0.5:
                hits = n - _binomial(n, 1 - p, stream, i)
            to[unsafe_offset=i] = hits.cast[dtype]()

        each_line[target=target](work, output.size(), 200, ctx)


@register("tmb_randperm")
struct RandPerm:
    """A permutation of 0 to n - 1 (Fisher and Yates), each as likely as any.

    Raises for an n beyond `most`.
    """

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        most: Int64,
        ctx: DeviceContext,
    ) raises:
        var n = output.size()
        if n > Int(most):
            raise Error("n is too large for result tensor type: ", n)
        var to = memory(output.unsafe_ptr())
        var stream = Stream.of(seed, node, instance)

        @always_inline
        def work(line: Int) {var to, var stream, var n}:
            for i in range(n):
                to[unsafe_offset=i] = Scalar[dtype](i)
            comptime tile = 4 * LANES
            var first = (n - 1) // tile * tile
            while first >= 0:
                var words = stream.blocks[LANES](first // 4)
                var joined = words.a.join(words.b).join(words.c.join(words.d))
                for i in range(min(first + tile, n) - 1, max(first, 1) - 1, -1):
                    var span = UInt64(i + 1)
                    var product = joined[i - first].cast[DType.uint64]() * span
                    # Lemire, "Fast random integer generation in an interval".
                    if product & 0xFFFFFFFF < span:
                        var spoiled = ((UInt64(1) << 32) - span) % span
                        var attempt = 0
                        while product & 0xFFFFFFFF < spoiled:
                            attempt += 1
                            var again = stream.again(i, attempt).a
                            product = again.cast[DType.uint64]() * span
                    var j = Int(product >> 32)
                    var kept = to[unsafe_offset=i]
                    to[unsafe_offset=i] = to[unsafe_offset=j]
                    to[unsafe_offset=j] = kept
                first -= tile

        each_line[target=target](work, 1 if n > 0 else 0, n, ctx)
