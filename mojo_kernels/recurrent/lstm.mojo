"""The steps of an LSTM's layer in one direction, and their gradients."""

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
struct Lstm[dtype: DType](Layer, TrivialRegisterPassable):
    """The memory of a layer. What is not kept of each step has a distance of steps of 0."""

    comptime of = Self.dtype
    comptime parts = 4
    comptime Numbers = Pointer[Scalar[Self.dtype], Untracked]

    var shape: Shape
    var output: Self.Numbers
    var kept_gates: Self.Numbers
    var gates_step: Int
    var kept_cells: Self.Numbers
    var cells_step: Int
    var inner: Self.Numbers
    var hidden: Self.Numbers
    var cell: Self.Numbers

    @always_inline
    def state(self, step: Int) -> Address[Self.dtype]:
        if step < 0:
            return untracked(self.hidden)
        var place = self.shape.time(step) * self.shape.plane()
        return untracked(self.output.unsafe_offset(place))

    @always_inline
    def cells(self, step: Int) -> Address[Self.dtype]:
        """The cell state after a step; step -1 is before the first."""
        if step < 0:
            return untracked(self.cell)
        var place = self.shape.time(step) * self.cells_step
        return untracked(self.kept_cells.unsafe_offset(place))

    @always_inline
    def gates(self, step: Int) -> Address[Self.dtype]:
        var place = self.shape.time(step) * self.gates_step
        return untracked(self.kept_gates.unsafe_offset(place))

    @no_inline
    def finish(self, step: Int, begin: Int, end: Int, first: Int, last: Int):
        comptime width = simd_width_of[Self.dtype]()
        comptime Some = SIMD[Self.dtype, width]
        var size = self.shape.size
        var inner = self.inner.unsafe_offset(self.shape.time(step) * 4 * self.shape.plane())
        for b in range(begin, end):
            var line = self.gates(step).unsafe_offset(b * 4 * size)
            var added = untracked(inner.unsafe_offset(b * 4 * size))
            var old = self.cells(step - 1).unsafe_offset(b * size)
            var new = self.cells(step).unsafe_offset(b * size)
            var out = self.state(step).unsafe_offset(b * size)
            for j in range(first, last, width):
                var count = last - j
                var gates = Array[Some, 4](fill=Some(0))
                comptime for gate in range(4):
                    var place = gate * size + j
                    var v = some(line.unsafe_offset(place), count)
                    v += some(added.unsafe_offset(place), count)
                    comptime if gate == 2:
                        gates[gate] = tanh(v)
                    else:
                        gates[gate] = sigmoid(v)
                    if self.gates_step > 0:
                        put(line.unsafe_offset(place), gates[gate], count)
                var cell = gates[1] * some(old.unsafe_offset(j), count) + gates[0] * gates[2]
                put(new.unsafe_offset(j), cell, count)
                put(out.unsafe_offset(j), gates[3] * tanh(cell), count)


@fieldwise_init
struct LstmGradient[dtype: DType](Gradient, TrivialRegisterPassable):
    """The memory of a layer's gradients."""

    comptime of = Self.dtype
    comptime parts = 4
    comptime adds = False
    comptime Numbers = Pointer[Scalar[Self.dtype], Untracked]

    var shape: Shape
    var grad_inner: Self.Numbers
    var grad_hidden: Self.Numbers
    # Of the cell state that the step at hand returns.
    var grad_cell: Self.Numbers
    var grad_output: Self.Numbers
    var has_grad_output: Bool
    var gates: Self.Numbers
    var cells: Self.Numbers
    var cell: Self.Numbers

    @always_inline
    def state(self) -> Address[Self.dtype]:
        return untracked(self.grad_hidden)

    @always_inline
    def products(self, step: Int) -> Address[Self.dtype]:
        var place = self.shape.time(step) * 4 * self.shape.plane()
        return untracked(self.grad_inner.unsafe_offset(place))

    @no_inline
    def derive(self, step: Int, begin: Int, end: Int, first: Int, last: Int):
        comptime width = simd_width_of[Self.dtype]()
        comptime Some = SIMD[Self.dtype, width]
        var size = self.shape.size
        var plane = self.shape.plane()
        var time = self.shape.time(step)
        var before = self.cell
        if step > 0:
            before = self.cells.unsafe_offset(self.shape.time(step - 1) * plane)
        for b in range(begin, end):
            var row = b * size
            var to = self.products(step).unsafe_offset(4 * row)
            var gates = untracked(self.gates.unsafe_offset(4 * (time * plane + row)))
            var cells = untracked(self.cells.unsafe_offset(time * plane + row))
            var old = untracked(before.unsafe_offset(row))
            var of_output = untracked(self.grad_output.unsafe_offset(
                time * plane + row if self.has_grad_output else 0
            ))
            var of_hidden = self.state().unsafe_offset(row)
            var of_cell = untracked(self.grad_cell.unsafe_offset(row))
            for j in range(first, last, width):
                var count = last - j
                var i = some(gates.unsafe_offset(j), count)
                var f = some(gates.unsafe_offset(size + j), count)
                var g = some(gates.unsafe_offset(2 * size + j), count)
                var o = some(gates.unsafe_offset(3 * size + j), count)
                var out = tanh(some(cells.unsafe_offset(j), count))
                var dh = some(of_hidden.unsafe_offset(j), count)
                if self.has_grad_output:
                    dh += some(of_output.unsafe_offset(j), count)
                var dc = some(of_cell.unsafe_offset(j), count) + dh * o * (1 - out * out)
                var df = dc * some(old.unsafe_offset(j), count) * f * (1 - f)
                put(to.unsafe_offset(j), dc * g * i * (1 - i), count)
                put(to.unsafe_offset(size + j), df, count)
                put(to.unsafe_offset(2 * size + j), dc * i * (1 - g * g), count)
                put(to.unsafe_offset(3 * size + j), dh * out * o * (1 - o), count)
                put(of_cell.unsafe_offset(j), dc * f, count)


@register("tmb_lstm")
struct LstmSteps:
    """`inner[t]` is what step `t` adds to the gates (input, forget, cell, output; `[steps, batch,
    4 * hidden]`); `weight` is `[4 * hidden, hidden]`. Returns the output of each step, the last
    states, and the gates and cells of each step, either of which may have no steps."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        last_hidden: OutputTensor[dtype=dtype, rank=2, ...],
        last_cell: OutputTensor[dtype=dtype, rank=2, ...],
        gates: OutputTensor[dtype=dtype, rank=3, ...],
        cells: OutputTensor[dtype=dtype, rank=3, ...],
        inner: InputTensor[dtype=dtype, rank=3, ...],
        weight: InputTensor[dtype=dtype, rank=2, ...],
        hidden: InputTensor[dtype=dtype, rank=2, ...],
        cell: InputTensor[dtype=dtype, rank=2, ...],
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
        var keeps_gates = gates.dim_size[0]() > 0
        var keeps_cells = cells.dim_size[0]() > 0
        var scratch = List[Scalar[dtype]](
            unsafe_uninit_length=1 if keeps_gates else 4 * plane
        )
        var gp = untracked(gates.unsafe_ptr())
        if not keeps_gates:
            gp = untracked(scratch.unsafe_ptr())
        var cp = untracked(cells.unsafe_ptr())
        if not keeps_cells:
            cp = untracked(last_cell.unsafe_ptr())
        var of = Lstm[dtype](
            Shape(steps, batch, size, reverse != 0),
            untracked(output.unsafe_ptr()),
            gp,
            4 * plane if keeps_gates else 0,
            cp,
            plane if keeps_cells else 0,
            untracked(inner.unsafe_ptr()),
            untracked(hidden.unsafe_ptr()),
            untracked(cell.unsafe_ptr()),
        )
        var gemm = Gemm(Int(routine), Int(set_threads))
        forwards(of, untracked(weight.unsafe_ptr()), of.shape, gemm)
        var last = untracked(last_hidden.unsafe_ptr())
        copy(last, of.state(steps - 1), plane)
        if keeps_cells or steps == 0:
            last = untracked(last_cell.unsafe_ptr())
            copy(last, of.cells(steps - 1), plane)
        _ = scratch^


@register("tmb_lstm_backward")
struct LstmStepsBackward:
    """The gradients of `inner` and of the first states, of those of the output and the last states,
    which are 0 where they have no elements, and of the gates and cells that `tmb_lstm` keeps."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        grad_inner: OutputTensor[dtype=dtype, rank=3, ...],
        grad_hidden: OutputTensor[dtype=dtype, rank=2, ...],
        grad_cell: OutputTensor[dtype=dtype, rank=2, ...],
        grad_output: InputTensor[dtype=dtype, rank=3, ...],
        grad_last_hidden: InputTensor[dtype=dtype, rank=2, ...],
        grad_last_cell: InputTensor[dtype=dtype, rank=2, ...],
        gates: InputTensor[dtype=dtype, rank=3, ...],
        cells: InputTensor[dtype=dtype, rank=3, ...],
        cell: InputTensor[dtype=dtype, rank=2, ...],
        weight: InputTensor[dtype=dtype, rank=2, ...],
        reverse: Int64,
        routine: Int64,
        set_threads: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "on CPU only"
        comptime assert dtype.is_floating_point(), "float only"
        var steps = cells.dim_size[0]()
        var batch = cells.dim_size[1]()
        var size = cells.dim_size[2]()
        var plane = batch * size
        if plane == 0:
            return
        copy_or_zero(
            untracked(grad_hidden.unsafe_ptr()),
            untracked(grad_last_hidden.unsafe_ptr()),
            grad_last_hidden.dim_size[0]() > 0,
            plane,
        )
        copy_or_zero(
            untracked(grad_cell.unsafe_ptr()),
            untracked(grad_last_cell.unsafe_ptr()),
            grad_last_cell.dim_size[0]() > 0,
            plane,
        )
        var of = LstmGradient[dtype](
            Shape(steps, batch, size, reverse != 0),
            untracked(grad_inner.unsafe_ptr()),
            untracked(grad_hidden.unsafe_ptr()),
            untracked(grad_cell.unsafe_ptr()),
            untracked(grad_output.unsafe_ptr()),
            grad_output.dim_size[0]() > 0,
            untracked(gates.unsafe_ptr()),
            untracked(cells.unsafe_ptr()),
            untracked(cell.unsafe_ptr()),
        )
        var gemm = Gemm(Int(routine), Int(set_threads))
        if steps > 0:
            var wp = untracked(weight.unsafe_ptr())
            backwards(of, wp, of.shape, gemm)
