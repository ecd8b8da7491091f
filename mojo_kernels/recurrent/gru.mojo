"""The steps of a GRU's layer in one direction, and their gradients."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.memory import Pointer
from std.sys import simd_width_of

from ..core.memory import Address, Untracked, untracked
from ..gemm.blas import Gemm
from ..mathematics.hyperbolic import tanh
from .products import (
    Gradient,
    Layer,
    Shape,
    backwards,
    copy,
    copy_or_zero,
    forwards,
    put,
    sigmoid,
    some,
)


@fieldwise_init
struct Gru[dtype: DType](Layer, TrivialRegisterPassable):
    """The memory of a layer. Gates that are not kept of each step have a distance of steps of 0."""

    comptime of = Self.dtype
    comptime parts = 3
    comptime Numbers = Pointer[Scalar[Self.dtype], Untracked]

    var shape: Shape
    var output: Self.Numbers
    var kept_gates: Self.Numbers
    var gates_step: Int
    var inner: Self.Numbers
    var bias: Self.Numbers
    var has_bias: Bool
    var hidden: Self.Numbers

    @always_inline
    def state(self, step: Int) -> Address[Self.dtype]:
        if step < 0:
            return untracked(self.hidden)
        var place = self.shape.time(step) * self.shape.plane()
        return untracked(self.output.unsafe_offset(place))

    @always_inline
    def gates(self, step: Int) -> Address[Self.dtype]:
        var place = self.shape.time(step) * self.gates_step
        return untracked(self.kept_gates.unsafe_offset(place))

    @no_inline
    def finish(self, step: Int, begin: Int, end: Int, first: Int, last: Int):
        comptime width = simd_width_of[Self.dtype]()
        comptime Some = SIMD[Self.dtype, width]
        var size = self.shape.size
        var inner = self.inner.unsafe_offset(self.shape.time(step) * 3 * self.shape.plane())
        var bias = untracked(self.bias)
        for b in range(begin, end):
            var line = self.gates(step).unsafe_offset(b * 4 * size)
            var added = untracked(inner.unsafe_offset(b * 3 * size))
            var old = self.state(step - 1).unsafe_offset(b * size)
            var out = self.state(step).unsafe_offset(b * size)
            for j in range(first, last, width):
                var count = last - j
                var products = Array[Some, 3](fill=Some(0))
                comptime for part in range(3):
                    products[part] = some(line.unsafe_offset(part * size + j), count)
                    if self.has_bias:
                        products[part] += some(bias.unsafe_offset(part * size + j), count)
                var reset = sigmoid(products[0] + some(added.unsafe_offset(j), count))
                var kept = sigmoid(products[1] + some(added.unsafe_offset(size + j), count))
                var new = tanh(
                    some(added.unsafe_offset(2 * size + j), count) + products[2] * reset
                )
                if self.gates_step > 0:
                    put(line.unsafe_offset(j), reset, count)
                    put(line.unsafe_offset(size + j), kept, count)
                    put(line.unsafe_offset(2 * size + j), new, count)
                    put(line.unsafe_offset(3 * size + j), products[2], count)
                var state = some(old.unsafe_offset(j), count)
                put(out.unsafe_offset(j), (state - new) * kept + new, count)


@fieldwise_init
struct GruGradient[dtype: DType](Gradient, TrivialRegisterPassable):
    """The memory of a layer's gradients."""

    comptime of = Self.dtype
    comptime parts = 3
    comptime adds = True
    comptime Numbers = Pointer[Scalar[Self.dtype], Untracked]

    var shape: Shape
    var grad_inner: Self.Numbers
    var grad_products: Self.Numbers
    var grad_hidden: Self.Numbers
    var grad_output: Self.Numbers
    var has_grad_output: Bool
    var gates: Self.Numbers
    var output: Self.Numbers
    var hidden: Self.Numbers

    @always_inline
    def state(self) -> Address[Self.dtype]:
        return untracked(self.grad_hidden)

    @always_inline
    def products(self, step: Int) -> Address[Self.dtype]:
        var place = self.shape.time(step) * 3 * self.shape.plane()
        return untracked(self.grad_products.unsafe_offset(place))

    @no_inline
    def derive(self, step: Int, begin: Int, end: Int, first: Int, last: Int):
        comptime width = simd_width_of[Self.dtype]()
        var size = self.shape.size
        var plane = self.shape.plane()
        var time = self.shape.time(step)
        var before = self.hidden
        if step > 0:
            before = self.output.unsafe_offset(self.shape.time(step - 1) * plane)
        for b in range(begin, end):
            var row = b * size
            var to = self.products(step).unsafe_offset(3 * row)
            var inner = untracked(self.grad_inner.unsafe_offset(
                3 * (time * plane + row)
            ))
            var gates = untracked(self.gates.unsafe_offset(4 * (time * plane + row)))
            var old = untracked(before.unsafe_offset(row))
            var of_output = untracked(self.grad_output.unsafe_offset(
                time * plane + row if self.has_grad_output else 0
            ))
            var of_hidden = self.state().unsafe_offset(row)
            for j in range(first, last, width):
                var count = last - j
                var r = some(gates.unsafe_offset(j), count)
                var z = some(gates.unsafe_offset(size + j), count)
                var n = some(gates.unsafe_offset(2 * size + j), count)
                var product = some(gates.unsafe_offset(3 * size + j), count)
                var dh = some(of_hidden.unsafe_offset(j), count)
                if self.has_grad_output:
                    dh += some(of_output.unsafe_offset(j), count)
                var dz = dh * (some(old.unsafe_offset(j), count) - n) * z * (1 - z)
                var dn = dh * (1 - z) * (1 - n * n)
                var dr = dn * product * r * (1 - r)
                put(to.unsafe_offset(j), dr, count)
                put(to.unsafe_offset(size + j), dz, count)
                put(to.unsafe_offset(2 * size + j), dn * r, count)
                put(inner.unsafe_offset(j), dr, count)
                put(inner.unsafe_offset(size + j), dz, count)
                put(inner.unsafe_offset(2 * size + j), dn, count)
                put(of_hidden.unsafe_offset(j), dh * z, count)


@register("tmb_gru")
struct GruSteps:
    """`inner[t]` is what step `t` adds to the gates (reset, update, new; `[steps, batch,
    3 * hidden]`); `weight` is `[3 * hidden, hidden]`, and `bias` is added to its products. Returns
    the output of each step, the last state, and of each step the three gates and the product that
    the reset gate scales (`[steps, batch, 4 * hidden]`), which may have no steps."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        last_hidden: OutputTensor[dtype=dtype, rank=2, ...],
        gates: OutputTensor[dtype=dtype, rank=3, ...],
        inner: InputTensor[dtype=dtype, rank=3, ...],
        weight: InputTensor[dtype=dtype, rank=2, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        hidden: InputTensor[dtype=dtype, rank=2, ...],
        reverse: Int64,
        routine: Int64,
        set_threads: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "on CPU only"
        comptime assert dtype.is_floating_point(), "float only"
        var steps = output.dim_size[0]()
        var batch = output.dim_size[1]()
        var size = output.dim_size[2]()
        var plane = batch * size
        if plane == 0:
            return
        var keeps = gates.dim_size[0]() > 0
        var scratch = List[Scalar[dtype]](unsafe_uninit_length=1 if keeps else 4 * plane)
        var gp = untracked(gates.unsafe_ptr())
        if not keeps:
            gp = untracked(scratch.unsafe_ptr())
        var of = Gru[dtype](
            Shape(steps, batch, size, reverse != 0),
            untracked(output.unsafe_ptr()),
            gp,
            4 * plane if keeps else 0,
            untracked(inner.unsafe_ptr()),
            untracked(bias.unsafe_ptr()),
            bias.dim_size[0]() > 0,
            untracked(hidden.unsafe_ptr()),
        )
        var gemm = Gemm(Int(routine), Int(set_threads))
        forwards(of, untracked(weight.unsafe_ptr()), of.shape, gemm)
        var last = untracked(last_hidden.unsafe_ptr())
        copy(last, of.state(steps - 1), plane)
        _ = scratch^


@register("tmb_gru_backward")
struct GruStepsBackward:
    """The gradients of `inner`, of the products by the weights and of the first state, of those of
    the output and the last state, which are 0 where they have no elements, and of what `tmb_gru`
    returns and takes."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        grad_inner: OutputTensor[dtype=dtype, rank=3, ...],
        grad_products: OutputTensor[dtype=dtype, rank=3, ...],
        grad_hidden: OutputTensor[dtype=dtype, rank=2, ...],
        grad_output: InputTensor[dtype=dtype, rank=3, ...],
        grad_last_hidden: InputTensor[dtype=dtype, rank=2, ...],
        gates: InputTensor[dtype=dtype, rank=3, ...],
        output: InputTensor[dtype=dtype, rank=3, ...],
        hidden: InputTensor[dtype=dtype, rank=2, ...],
        weight: InputTensor[dtype=dtype, rank=2, ...],
        reverse: Int64,
        routine: Int64,
        set_threads: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "on CPU only"
        comptime assert dtype.is_floating_point(), "float only"
        var steps = output.dim_size[0]()
        var batch = output.dim_size[1]()
        var size = output.dim_size[2]()
        var plane = batch * size
        if plane == 0:
            return
        copy_or_zero(
            untracked(grad_hidden.unsafe_ptr()),
            untracked(grad_last_hidden.unsafe_ptr()),
            grad_last_hidden.dim_size[0]() > 0,
            plane,
        )
        var of = GruGradient[dtype](
            Shape(steps, batch, size, reverse != 0),
            untracked(grad_inner.unsafe_ptr()),
            untracked(grad_products.unsafe_ptr()),
            untracked(grad_hidden.unsafe_ptr()),
            untracked(grad_output.unsafe_ptr()),
            grad_output.dim_size[0]() > 0,
            untracked(gates.unsafe_ptr()),
            untracked(output.unsafe_ptr()),
            untracked(hidden.unsafe_ptr()),
        )
        var gemm = Gemm(Int(routine), Int(set_threads))
        if steps > 0:
            var wp = untracked(weight.unsafe_ptr())
            backwards(of, wp, of.shape, gemm)
