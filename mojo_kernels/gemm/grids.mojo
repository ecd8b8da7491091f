"""How matrix products are cut into parts, which tasks compute."""

from std.math import ceildiv

from .blas import product_cost, tasks_for


struct Part(TrivialRegisterPassable):
    """A part of one product of a batch: `rows` and `columns` from `row` and `column` on."""

    var item: Int
    var row: Int
    var column: Int
    var rows: Int
    var columns: Int

    @always_inline
    def __init__(out self, item: Int, row: Int, column: Int, rows: Int, columns: Int):
        self.item = item
        self.row = row
        self.column = column
        self.rows = rows
        self.columns = columns

    @always_inline
    def is_empty(self) -> Bool:
        """Whether there is nothing to compute."""
        return self.rows <= 0 or self.columns <= 0


struct Grid(TrivialRegisterPassable):
    """Parts of the products `[batch, m, k] [batch, k, n]`, as square as the tasks allow."""

    var m: Int
    var n: Int
    var across: Int
    var down: Int
    var high: Int
    var wide: Int
    var units: Int
    var tasks: Int

    def __init__(out self, batch: Int, m: Int, n: Int, k: Int, side: Int = 16):
        """Of parts whose columns begin at multiples of `side`: whole cache lines."""
        var tasks = tasks_for(batch * m * n, product_cost(batch, m, n, k))
        var parts = ceildiv(tasks, batch)
        var down = 1
        for i in range(1, parts + 1):
            var other = parts // i
            if i * other == parts and i <= m and other <= n:
                if m // i + n // other < m // down + n // (parts // down):
                    down = i
        var across = max(1, min(parts // down, n))
        self.m = m
        self.n = n
        self.down = down
        self.high = ceildiv(m, down)
        self.wide = ceildiv(ceildiv(n, across), side) * side
        self.across = ceildiv(n, self.wide)
        self.units = batch * down * self.across
        self.tasks = min(tasks, self.units)

    @always_inline
    def part(self, unit: Int) -> Part:
        """The part of a number below `units`."""
        var row = unit // self.across % self.down * self.high
        var column = unit % self.across * self.wide
        return Part(
            unit // (self.down * self.across),
            row,
            column,
            min(self.high, self.m - row),
            min(self.wide, self.n - column),
        )
