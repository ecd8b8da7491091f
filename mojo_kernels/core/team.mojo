"""The threads of CPU kernels: MAX's pool inside a MAX graph. In a step library, which is built with
`-D TMB_STEPS=1`, torch's OpenMP team on the calling thread, or with `-D TMB_SERIAL=1` too that
thread alone."""

from max.algorithm import sync_parallelize as parallelize_in_max
from max.runtime.asyncrt import parallelism_level as level_in_max
from std.atomic import Atomic
from std.ffi import _Global, external_call
from std.math import ceildiv
from std.memory import Pointer
from std.sys import CompilationTarget, is_defined, llvm_intrinsic
from std.sys._assembly import inlined_assembly
from std.time import perf_counter_ns

comptime STEPS = is_defined["TMB_STEPS"]()
comptime SERIAL = is_defined["TMB_SERIAL"]()

comptime Data = Pointer[Int8, MutAnyOrigin]


@always_inline
def parallelism_level(ctx: NoneType) -> Int:
    """How many threads a kernel may use: in a step what `torch.set_num_threads` says."""
    comptime if not STEPS:
        return level_in_max(None)
    elif SERIAL:
        return 1
    else:
        if external_call["omp_in_parallel", Int32]() != 0:
            return 1
        return Int(external_call["omp_get_max_threads", Int32]())


@always_inline
def task_count(units: Int, steps: Int, grain: Int) -> Int:
    """How many tasks to cut units of work into.

    Args:
        units: What a task has at least one of.
        steps: What all of them take together.
        grain: The steps that are worth a task.
    """
    return max(1, min(min(parallelism_level(None), units), steps // grain))


@always_inline
def sync_parallelize[
    Work: def(Int) -> None, //
](work: Work, tasks: Int):
    """Calls `work` with each number below `tasks` and returns when all calls have. Calls may run
    at the same time."""
    comptime if not STEPS:
        parallelize_in_max(work, tasks)
    else:
        if tasks <= 1 or parallelism_level(None) <= 1:
            for task in range(tasks):
                work(task)
            return
        comptime if not SERIAL:
            _fork(_Call(Pointer(to=work).unsafe_origin_cast[UntrackedOrigin[mut=False]]()), tasks)


@always_inline
def in_ranges[
    Work: def(Int, Int) -> None, //
](work: Work, units: Int, tasks: Int):
    """Calls `work(lower, upper)` for `tasks` ranges that cover the numbers below `units`, as
    `sync_parallelize` does. Some ranges may be empty."""
    var body = Pointer(to=work).unsafe_origin_cast[UntrackedOrigin[mut=False]]()
    var chunk = ceildiv(units, tasks)

    def part(task: Int) {var body, var units, var chunk}:
        body[](task * chunk, min(units, (task + 1) * chunk))

    sync_parallelize(part, tasks)


@always_inline
def in_numbered_ranges[
    Work: def(Int, Int, Int) -> None, //
](work: Work, units: Int, tasks: Int):
    """`in_ranges` for what has memory for each task: calls `work(task, lower, upper)`."""
    var body = Pointer(to=work).unsafe_origin_cast[UntrackedOrigin[mut=False]]()
    var chunk = ceildiv(units, tasks)

    def part(task: Int) {var body, var units, var chunk}:
        body[](task, task * chunk, min(units, (task + 1) * chunk))

    sync_parallelize(part, tasks)


trait _Task(Deinitable, ImplicitlyCopyable, RegisterPassable):
    # "capturing" makes a function of a closure one that has a C address.
    def __call__(self, task: Int) capturing:
        ...


@fieldwise_init
struct _Call[Work: def(Int) -> None](_Task):
    var work: Pointer[Self.Work, UntrackedOrigin[mut=False]]

    @always_inline
    def __call__(self, task: Int):
        self.work[](task)


@fieldwise_init
struct _Job[Task: _Task](Movable):
    var task: Self.Task
    var taken: Pointer[Int64, UntrackedOrigin[mut=True]]
    var tasks: Int64
    var mode: Int64
    # What the calling thread did, and when it found nothing more to do.
    var done: Int64
    var finished: Int


# Shares of the tasks at most: threads beyond help the others.
comptime SHARES = 64
# Nanoseconds lost to waiting after which the calling thread works alone for a while. Threads of another
# process that wait in a loop after their work, for some milliseconds, cost less.
comptime LOSS = 16_000_000
# The same where the team was tried again.
comptime NEXT_LOSS = 4_000_000
# How long the calling thread works alone at first, and at most: each time twice as long as the time
# before, until the team is worth it again.
comptime ALONE = 3_000_000
comptime ALONE_AT_MOST = 500_000_000


@fieldwise_init
struct _Balance(ImplicitlyCopyable):
    """Whether the team is worth its waiting, for all threads of the process. Where other processes
    use the cores, a member that is not running keeps the rest from the next step.

    Fields:
        lost: Nanoseconds that the calling threads lost to it lately, against working alone.
        alone_until: The time at which it is tried again.
        pause: How long the calling threads work alone the next time.
    """

    var lost: Int
    var alone_until: Int
    var pause: Int

    def count(mut self, taken: Int, alone: Int, now: Int):
        """Notes how long tasks took, and what they take one thread."""
        self.lost = max(0, self.lost + taken - alone)
        if self.lost == 0:
            self.pause = ALONE
        elif self.lost > LOSS:
            self.alone_until = now + self.pause
            self.pause = min(2 * self.pause, ALONE_AT_MOST)
            self.lost = LOSS - NEXT_LOSS


def _new_balance() -> _Balance:
    return _Balance(0, 0, ALONE)


# One for the libraries of all kernels.
comptime BALANCE = _Global["torch_max_backend.team", _new_balance]


def _fork[Task: _Task, //](task: Task, tasks: Int):
    """Does all tasks, by the team unless that has lost too much lately."""
    try:
        ref balance = BALANCE.get_or_create_ptr()[]
        var begin = perf_counter_ns()
        if begin < balance.alone_until:
            for number in range(tasks):
                task(number)
            return
        var job = _shared(task, tasks)
        if job.done > 0:
            var now = perf_counter_ns()
            balance.count(now - begin, (job.finished - begin) * tasks // Int(job.done), now)
    except:
        # There is no memory for the balance.
        _ = _shared(task, tasks)


def _shared[Task: _Task, //](task: Task, tasks: Int) -> _Job[Task]:
    """Has the team do all tasks."""
    # How many tasks of each thread's share are taken.
    var taken = Array[Int64, SHARES](fill=0)
    var job = _Job[Task](
        task,
        Pointer(to=taken).unsafe_bitcast[Int64]().unsafe_origin_cast[UntrackedOrigin[mut=True]](),
        Int64(tasks),
        float_mode(),
        0,
        0,
    )
    # 0: the whole team, as torch takes it. A smaller one would end the other threads, and the
    # next larger one start them again.
    external_call["GOMP_parallel", NoneType](
        _member[Task],
        Pointer(to=job).unsafe_bitcast[Int8]().unsafe_origin_cast[MutAnyOrigin](),
        Int32(0),
        Int32(0),
    )
    _ = taken^
    return job^


def _member[Task: _Task](data: Data) abi("C"):
    """What each thread of the team does: its share of the tasks, the same at each call because its
    caches may still hold what that needs, then what is left of the others'."""
    var job = data.unsafe_bitcast[_Job[Task]]()
    var shares = min(Int(external_call["omp_get_num_threads", Int32]()), SHARES)
    var me = Int(external_call["omp_get_thread_num", Int32]())
    var tasks = Int(job[].tasks)
    var own = float_mode()
    var mode = own
    var done = 0
    for k in range(shares):
        var owner = (me + k) % shares
        var first = owner * tasks // shares
        var count = Int64((owner + 1) * tasks // shares - first)
        var taken = job[].taken.unsafe_offset(owner)
        while Atomic.load(taken) < count:
            var mine = Atomic.fetch_add(taken, Int64(1))
            if mine >= count:
                break
            # Writing it is what takes time.
            if mode != job[].mode:
                mode = job[].mode
                set_float_mode(mode)
            job[].task(first + Int(mine))
            done += 1
    if mode != own:
        set_float_mode(own)
    if me == 0:
        job[].done = Int64(done)
        job[].finished = perf_counter_ns()


@always_inline
def float_mode() -> Int64:
    """How this thread rounds, and whether it flushes subnormal numbers to 0 (see
    `torch.set_flush_denormal`), which each thread decides for itself."""
    comptime if CompilationTarget.is_x86():
        var state = Int32(0)
        llvm_intrinsic["llvm.x86.sse.stmxcsr", NoneType](Pointer(to=state))
        # Without the flags that say what has happened so far.
        return Int64(state) & ~0x3F
    else:
        return inlined_assembly["mrs $0, fpcr", Int64, constraints="=r"]()


@always_inline
def set_float_mode(mode: Int64):
    """Makes this thread compute as `float_mode` said of another."""
    comptime if CompilationTarget.is_x86():
        var state = mode.cast[DType.int32]()
        llvm_intrinsic["llvm.x86.sse.ldmxcsr", NoneType](Pointer(to=state))
    else:
        inlined_assembly["msr fpcr, $0", NoneType, constraints="r"](mode)
