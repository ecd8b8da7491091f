"""Gradients of running products."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from .scanning import Scanning, columns_of, running_type, scan_lines, store_columns


@fieldwise_init
struct _ProductGradients[dtype: DType, wide: DType](Scanning):
    """Of numbers that are not 0: what the gradients times the products add up to from the end on,
    over the number. Lines with a 0 are gone through once more."""

    var grad: Address[Self.dtype]
    var x: Address[Self.dtype]
    var products: Address[Self.dtype]
    var to: Address[Self.dtype]

    @no_inline
    def beside[width: Int](self, first: Int, n: Int, inner: Int):
        var sums = SIMD[Self.wide, width](0)
        var zeros = SIMD[DType.bool, width](fill=False)
        for i in range(n - 1, -1, -1):
            var at = first + i * inner
            var x = self.x.unsafe_load[width=width](at)
            var each = self.grad.unsafe_load[width=width](at)
            each *= self.products.unsafe_load[width=width](at)
            sums += each.cast[Self.wide]()
            zeros = zeros | x.eq(0)
            self.to.unsafe_store(at, sums.cast[Self.dtype]() / x)
        comptime for lane in range(width):
            if zeros[lane]:
                self._with_zeros(first + lane, n, inner)

    @no_inline
    def behind[width: Int](self, first: Int, n: Int):
        var sums = SIMD[Self.wide, width](0)
        var zeros = SIMD[DType.bool, width](fill=False)
        for j in range((n - 1) // width * width, -1, -width):
            var columns = min(width, n - j)
            var at = first + j
            var x = columns_of[width](self.x.unsafe_offset(at), n, columns)
            var each = columns_of[width](self.grad.unsafe_offset(at), n, columns)
            var products = columns_of[width](self.products.unsafe_offset(at), n, columns)
            for k in range(columns - 1, -1, -1):
                sums += (each[k] * products[k]).cast[Self.wide]()
                zeros = zeros | x[k].eq(0)
                each[k] = sums.cast[Self.dtype]() / x[k]
            store_columns[width](each, self.to.unsafe_offset(at), n, columns)
        comptime for lane in range(width):
            if zeros[lane]:
                self._with_zeros(first + lane * n, n, 1)

    @no_inline
    def _with_zeros(self, first: Int, n: Int, inner: Int):
        """A line with a 0: products from the first on are 0 whatever is before or behind it."""
        var zero = 0
        while self.x[unsafe_offset = first + zero * inner] != 0:
            zero += 1
        var sums = Scalar[Self.wide](0)
        for i in range(zero - 1, -1, -1):
            var at = first + i * inner
            sums += (
                self.grad[unsafe_offset=at] * self.products[unsafe_offset=at]
            ).cast[Self.wide]()
            self.to[unsafe_offset=at] = sums.cast[Self.dtype]() / self.x[unsafe_offset=at]
        var at = first + zero * inner
        var product = Scalar[Self.wide](1)
        if zero > 0:
            product = self.products[unsafe_offset = at - inner].cast[Self.wide]()
        var total = self.grad[unsafe_offset=at].cast[Self.wide]() * product
        for i in range(zero + 1, n):
            var later = first + i * inner
            product *= self.x[unsafe_offset=later].cast[Self.wide]()
            total += self.grad[unsafe_offset=later].cast[Self.wide]() * product
            self.to[unsafe_offset=later] = 0
        self.to[unsafe_offset=at] = total.cast[Self.dtype]()


@register("tmb_cumprod_backward")
struct CumulativeProductBackward:
    """The gradient of running products along the middle axis of `x`, `[outer, n, inner]`, given
    theirs and the products."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        grad: InputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        products: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs take torch's formula"
        comptime assert dtype.is_floating_point(), "float only"
        if x.size() == 0:
            return
        if grad.size() != x.size() or products.size() != x.size() or output.size() != x.size():
            raise Error("gradients, numbers and products are not as many")
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        var lines = _ProductGradients[dtype, running_type[dtype, target]()](
            untracked(grad.unsafe_ptr()),
            untracked(x.unsafe_ptr()),
            untracked(products.unsafe_ptr()),
            untracked(output.unsafe_ptr()),
        )
        scan_lines[simd_width_of[dtype]()](lines, x.dim_size[0](), n, inner)
