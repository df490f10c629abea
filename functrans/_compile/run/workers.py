"""Threads of the system's own that share the chunks of a native function.

A thread of Python's takes 20 to 60 us to start, and as long again until it has the interpreter.
These stay. After a job each looks for the next one for a while, if the last two came soon after one
another, and then sleeps until it is woken. Chunks are taken one by one, by the caller as well, so
that it never waits for a thread that has not begun.

Where processors are scarce, threads that look for work take time from their own caller. Signs of
that are a thread that was stopped while it looked, one that rose late, a chunk that took long, and
a long job with which nobody helped. Callers work alone then, for eight times as long as was lost.
So they do where another thread uses the workers.

A function takes a list of arrays, or any address, and the first and the last of its chunks, and
returns a status: what is not zero in any chunk is in the result. It calls nothing of Python's.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import platform
import signal
import sys
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from functrans._compile.lowering.numbers import fill
from functrans._compile.run.machine import Machine, NativeUnavailable, kept_native, local
from functrans._core.locks import Lock, compiler
from functrans._kernels import large
from functrans._kernels.routines import address_of

# Nanoseconds for which a thread looks for work: as a rule, where jobs come one soon after another.
GLANCE, SPIN = 4_000, 100_000
# Nanoseconds that a caller waits for others' chunks before it lets other threads run; that a thread
# may stop between two looks at the clock; and in which somebody should have come to help.
PATIENCE, STOPPED, LATE = 40_000, 500_000, 80_000
# A thread that looks for work offers its processor to others each time. Where somebody took it for
# so long, it does not look any further.
WANTED = 20_000
# Nanoseconds of work from which it pays to share it, to wake a thread that sleeps for it, and to
# start threads of Python's where there are no others.
SHARED, WAKE, LONG = 8_000, 100_000, 1_000_000
# The number of the system call that sleeps and wakes, and the instruction of a loop that waits.
FUTEX = {"x86_64": 202, "aarch64": 98}
PAUSE = {"x86_64": ("x86.sse2.pause", ""), "aarch64": ("aarch64.hint", "i32 1")}
MOST = 64  # threads
SLICE = 25_000  # nanoseconds of work for which there is another one, beside the first two
STACK = 1 << 22  # bytes of the stack of each
LINE = 8  # words of a line of the cache

# Words of the state, in lines of their own where several threads write to them.
WORDS = {"ticket": 0, "function": 8, "argument": 9, "limit": 10, "began": 11,
         "done": 16, "status": 17, "helpers": 18, "sleepers": 24,
         "lock": 32, "until": 33, "seen": 34, "credit": 35, "team": 36}
SIZE = 40

# The ticket: the number of a job in the upper half; below, where the chunks end and begin that
# nobody has taken. The caller takes the first, others the last, so that each thread has the same
# parts of arrays in job after job, which are in its cache. All ones: no chunk, a job is entered.
# Where a job is, in the functions that enter it and take from it.
JOB = """\
  %ticket = getelementptr i64, ptr %state, i64 <ticket>
  %at.function = getelementptr i64, ptr %state, i64 <function>
  %at.argument = getelementptr i64, ptr %state, i64 <argument>
  %at.limit = getelementptr i64, ptr %state, i64 <limit>
  %done = getelementptr i64, ptr %state, i64 <done>
  %status = getelementptr i64, ptr %state, i64 <status>
"""
MANY = 1 << 15  # chunks, which are not as many as there is room for
TEXT = """\
declare void @llvm.<pause.type>
declare i64 @llvm.smax.i64(i64, i64)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)

define internal i64 @now() {
  %time = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

define internal void @pause() {
  br label %again
again:
  %i = phi i64 [0, %0], [%j, %again]
  call void @llvm.<pause>
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, 16
  br i1 %more, label %again, label %leave
leave:
  ret void
}

; Processors are scarce: callers work alone for a while, eight times as long as was lost.
define internal void @scarce(ptr %state, i64 %time, i64 %lost) {
  %until = getelementptr i64, ptr %state, i64 <until>
  %span = shl i64 %lost, 3
  %end = add i64 %time, %span
  %before = atomicrmw max ptr %until, i64 %end monotonic
  ret void
}

; Chunks are computed as long as there are any; how many.
define internal i64 @drain(ptr %state, i64 %index) {
<job>
  %helpers = getelementptr i64, ptr %state, i64 <helpers>
  %caller = icmp eq i64 %index, 0
  br i1 %caller, label %look, label %apply
apply:
  %before.me = atomicrmw add ptr %helpers, i64 1 monotonic
  %my.number = add i64 %before.me, 1
  %wanted = load atomic i64, ptr %at.limit acquire, align 8
  %enough = icmp uge i64 %my.number, %wanted
  br i1 %enough, label %leave, label %look
look:
  %mine.so.far = phi i64 [0, %0], [0, %apply], [%mine.so.far, %claim], [%one.more, %finished]
  %t = load atomic i64, ptr %ticket acquire, align 8
  %function = load atomic ptr, ptr %at.function acquire, align 8
  %argument = load atomic ptr, ptr %at.argument acquire, align 8
  %first = and i64 %t, 65535
  %ends = lshr i64 %t, 16
  %stop = and i64 %ends, 65535
  %last = sub i64 %stop, 1
  %i = select i1 %caller, i64 %first, i64 %last
  %step = select i1 %caller, i64 1, i64 -65536
  %some = icmp ult i64 %first, %stop
  br i1 %some, label %claim, label %leave
claim:
  %next = add i64 %t, %step
  %pair = cmpxchg ptr %ticket, i64 %t, i64 %next acq_rel acquire
  %claimed = extractvalue {i64, i1} %pair, 1
  br i1 %claimed, label %work, label %look
work:
  %end = add i64 %i, 1
  %result = call i32 %function(ptr %argument, i64 %i, i64 %end)
  %wide = zext i32 %result to i64
  %bad = icmp ne i64 %wide, 0
  br i1 %bad, label %note, label %finished
note:
  %before = atomicrmw or ptr %status, i64 %wide monotonic
  br label %finished
finished:
  %others = atomicrmw add ptr %done, i64 1 release
  %one.more = add i64 %mine.so.far, 1
  br label %look
leave:
  %mine = phi i64 [0, %apply], [%mine.so.far, %look]
  ret i64 %mine
}

; A thread: its argument is where the state is, and its number.
define ptr @worker(ptr %self) {
  %state = load ptr, ptr %self
  %at = getelementptr i64, ptr %self, i64 1
  %index = load i64, ptr %at
  %job = getelementptr i8, ptr %state, i64 4
  %sleepers = getelementptr i64, ptr %state, i64 <sleepers>
  %at.began = getelementptr i64, ptr %state, i64 <began>
  br label %again
again:
  %from = phi i64 [0, %0], [%start, %spin], [%start, %rise], [%start, %kept]
  %seen = load atomic i32, ptr %job acquire, align 4
  %came = call i64 @now()
  %gap = sub i64 %came, %from
  %mine = call i64 @drain(ptr %state, i64 %index)
  %close = icmp ult i64 %gap, <spin>
  %some = icmp ne i64 %mine, 0
  %dense = and i1 %close, %some
  %patience = select i1 %dense, i64 <spin>, i64 <glance>
  %start = call i64 @now()
  br label %spin
spin:
  %before = phi i64 [%start, %again], [%time, %fine]
  call void @pause()
  %offered = call i32 @sched_yield()
  %seen.now = load atomic i32, ptr %job acquire, align 4
  %fresh = icmp ne i32 %seen.now, %seen
  br i1 %fresh, label %again, label %idle
idle:
  %time = call i64 @now()
  %step = sub i64 %time, %before
  %stopped = icmp ugt i64 %step, <wanted>
  br i1 %stopped, label %contended, label %fine
contended:
  %starving = icmp ugt i64 %step, <stopped>
  br i1 %starving, label %starved, label %rest
starved:
  %part = lshr i64 %step, 2
  call void @scarce(ptr %state, i64 %time, i64 %part)
  br label %rest
fine:
  %spent = sub i64 %time, %start
  %tired = icmp ugt i64 %spent, %patience
  br i1 %tired, label %rest, label %spin
rest:
  %others = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %sleep
sleep:
  %last = load atomic i32, ptr %job seq_cst, align 4
  %called = icmp ne i32 %last, %seen
  br i1 %called, label %rise, label %wait
wait:
  %woken = call i64 (i64, ...) @syscall(i64 <futex>, ptr %job, i64 128, i32 %seen, ptr null)
  br label %sleep
rise:
  %fewer = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %risen = call i64 @now()
  %began = load atomic i64, ptr %at.began acquire, align 8
  %delay = sub i64 %risen, %began
  %tardy = icmp sgt i64 %delay, <stopped>
  br i1 %tardy, label %kept, label %again
kept:
  %share = lshr i64 %delay, 2
  call void @scarce(ptr %state, i64 %risen, i64 %share)
  br label %again
}

; Whether so much work is to be shared now: 0 no, 1 with threads that are awake, 2 they are woken.
define i32 @ready(ptr %state, i64 %work, i64 %now) {
  %until = getelementptr i64, ptr %state, i64 <until>
  %sleepers = getelementptr i64, ptr %state, i64 <sleepers>
  %at.team = getelementptr i64, ptr %state, i64 <team>
  %scarce.until = load atomic i64, ptr %until monotonic, align 8
  %scarce = icmp slt i64 %now, %scarce.until
  br i1 %scarce, label %leave, label %count
count:
  %asleep = load atomic i64, ptr %sleepers monotonic, align 8
  %team = load atomic i64, ptr %at.team monotonic, align 8
  %awake = icmp slt i64 %asleep, %team
  br i1 %awake, label %leave, label %remember
remember:
  ; work of late that was not shared: it fades, a quarter as fast as time goes by
  %at.seen = getelementptr i64, ptr %state, i64 <seen>
  %at.credit = getelementptr i64, ptr %state, i64 <credit>
  %previous = load atomic i64, ptr %at.seen monotonic, align 8
  %credit = load atomic i64, ptr %at.credit monotonic, align 8
  store atomic i64 %now, ptr %at.seen monotonic, align 8
  %elapsed = sub i64 %now, %previous
  %faded = lshr i64 %elapsed, 2
  %rest = sub i64 %credit, %faded
  %kept = call i64 @llvm.smax.i64(i64 %rest, i64 0)
  %total = add i64 %kept, %work
  store atomic i64 %total, ptr %at.credit monotonic, align 8
  %worth = icmp ugt i64 %total, <wake>
  %woken = select i1 %worth, i32 2, i32 0
  br label %leave
leave:
  %how = phi i32 [0, %0], [1, %count], [%woken, %remember]
  ret i32 %how
}

; All chunks of a function, by up to so many threads; those that sleep are woken or left asleep.
define i32 @share(ptr %state, ptr %function, ptr %argument, i64 %count, i64 %limit, i64 %work) {
  %lock = getelementptr i64, ptr %state, i64 <lock>
<job>
  %sleepers = getelementptr i64, ptr %state, i64 <sleepers>
  %helpers = getelementptr i64, ptr %state, i64 <helpers>
  %at.began = getelementptr i64, ptr %state, i64 <began>
  %job = getelementptr i8, ptr %state, i64 4
  %others = sub i64 %limit, 1
  %several = icmp sgt i64 %others, 0
  br i1 %several, label %weigh, label %taken
weigh:
  %begin = call i64 @now()
  %how = call i32 @ready(ptr %state, i64 %work, i64 %begin)
  %wake = icmp eq i32 %how, 2
  %worth = icmp ne i32 %how, 0
  br i1 %worth, label %try, label %taken
try:
  %pair = cmpxchg ptr %lock, i64 0, i64 1 acquire monotonic
  %free = extractvalue {i64, i1} %pair, 1
  br i1 %free, label %enter, label %taken
taken:
  %by.me = call i32 %function(ptr %argument, i64 0, i64 %count)
  ret i32 %by.me
enter:
  %old = load atomic i64, ptr %ticket monotonic, align 8
  %numbered = or i64 %old, 4294967295
  store atomic i64 %numbered, ptr %ticket seq_cst, align 8
  store atomic ptr %function, ptr %at.function release, align 8
  store atomic ptr %argument, ptr %at.argument release, align 8
  store atomic i64 %limit, ptr %at.limit release, align 8
  store atomic i64 0, ptr %helpers release, align 8
  store atomic i64 0, ptr %done release, align 8
  store atomic i64 0, ptr %status release, align 8
  store atomic i64 %begin, ptr %at.began release, align 8
  %number = add i64 %numbered, 1
  %end.place = shl i64 %count, 16
  %open = or i64 %number, %end.place
  store atomic i64 %open, ptr %ticket seq_cst, align 8
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp ne i64 %asleep, 0
  %call = and i1 %any, %wake
  br i1 %call, label %ring, label %compute
ring:
  %rung = call i64 (i64, ...) @syscall(i64 <futex>, ptr %job, i64 129, i64 %others)
  br label %compute
compute:
  %own.chunks = call i64 @drain(ptr %state, i64 0)
  %unaided = icmp eq i64 %own.chunks, %count
  br label %join
join:
  %idle.from = call i64 @now()
  br label %watch
watch:
  call void @pause()
  %so.far = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %so.far, %count
  %time = call i64 @now()
  %waited = sub i64 %time, %idle.from
  br i1 %all, label %judge, label %patient
patient:
  %long = icmp ugt i64 %waited, <patience>
  br i1 %long, label %yield, label %watch
yield:
  %yielded = call i32 @sched_yield()
  br label %watch
judge:
  %own = sub i64 %idle.from, %begin
  %enough = icmp ugt i64 %own, <late>
  %useless = and i1 %unaided, %enough
  %bound = add i64 %own, <patience>
  %late = icmp ugt i64 %waited, %bound
  %spent = sub i64 %time, %begin
  %much = shl i64 %work, 3
  %expected = add i64 %much, <stopped>
  %slow = icmp ugt i64 %spent, %expected
  %some.lost = select i1 %late, i64 %waited, i64 0
  %half = lshr i64 %own, 1
  %help.lost = select i1 %useless, i64 %half, i64 %some.lost
  %lost = select i1 %slow, i64 %spent, i64 %help.lost
  %bad = icmp ne i64 %lost, 0
  br i1 %bad, label %punish, label %leave
punish:
  call void @scarce(ptr %state, i64 %time, i64 %lost)
  br label %leave
leave:
  %found = load atomic i64, ptr %status monotonic, align 8
  store atomic i64 0, ptr %lock release, align 8
  %result = trunc i64 %found to i32
  ret i32 %result
}
"""


class Workers:
    """The threads of this process, and what they look at, which lives as long as it."""

    def __init__(self, share: Callable[..., int], ready: Callable[..., int], worker: int):
        self._share, self._ready, self._worker = share, ready, worker
        self._room = (ctypes.c_int64 * (SIZE + LINE))()
        start = ctypes.addressof(self._room)
        self.state = -(-start // (8 * LINE)) * 8 * LINE
        self.words = (ctypes.c_int64 * SIZE).from_address(self.state)
        self.count = 0
        self._lock = Lock()
        self._selves: list[Any] = []
        self._libc = ctypes.CDLL(None)
        self.forget()

    def forget(self) -> None:
        """There are no threads yet, or, in a forked process, no longer."""
        self.count = 0
        for i in range(SIZE):
            self.words[i] = 0
        self.words[WORDS["ticket"]] = 0xFFFFFFFF

    def run(self, function: int, argument: int, chunks: int, threads: int, work: float) -> int:
        """The status of a function, of ``chunks`` that take ``work`` nanoseconds on one thread."""
        if threads > self.count + 1:
            self._start(threads - 1)
        return self._share(self.state, function, argument, chunks, threads, int(work))

    def ready(self, work: float) -> bool:
        """Whether ``share`` would share so many nanoseconds of work now, for who would rather do it
        in another way than alone."""
        return bool(self._ready(self.state, int(work), monotonic_ns()))

    def _start(self, wanted: int) -> None:
        with self._lock:
            if not hasattr(signal, "pthread_sigmask"):
                return
            attributes = (ctypes.c_int64 * 16)()
            self._libc.pthread_attr_init(attributes)
            self._libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK))
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                while self.count < wanted:
                    me = (ctypes.c_int64 * 2)(self.state, self.count + 1)
                    thread = ctypes.c_void_p()
                    if self._libc.pthread_create(ctypes.byref(thread), attributes,
                                                 ctypes.c_void_p(self._worker), me):
                        return  # the system gives no more: those that there are do
                    self._libc.pthread_detach(thread)
                    self._selves.append(me)
                    self.count = self.words[WORDS["team"]] = self.count + 1
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_threads(function: Any) -> Callable[[list, int, float], int]:
    """A native function of a list and a range of chunks as one that runs so many chunks, which take
    so many nanoseconds: on several threads where that pays. Its result is the status."""
    address = address_of(function)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_int64, ctypes.c_int64)
    alone = kind(address)

    def run(arrays: list, chunks: int, work: float) -> int:
        if not 1 < chunks < MANY or work < SHARED:
            return alone(arrays, 0, chunks)
        threads = min(large.cores(), chunks, MOST, 2 + int(work / SLICE))
        if threads == 1:
            return alone(arrays, 0, chunks)
        team = workers()
        if team is not None:
            return team.run(address, id(arrays), chunks, threads, work)
        if work < LONG:
            return alone(arrays, 0, chunks)
        statuses: list[int] = []
        large.share(lambda chunk: statuses.append(alone(arrays, chunk, chunk + 1)), range(chunks),
                    threads)
        return functools.reduce(operator.or_, statuses)

    return run


def of_own(source: Callable[[Machine], str], name: str, title: str
           ) -> Callable[[list, int, float], int] | None:
    """``on_threads`` of a function of the package's own, whose module ``source`` writes for a
    machine. None where nothing compiles, and where there is no text.
    """
    try:
        with compiler():
            machine = local()
            text = source(machine)
            if not text:
                return None
            loaded = machine.compile_own(text, [name], title)
    except (NativeUnavailable, ImportError):
        return None
    run = on_threads(loaded.functions[name])
    run.code = loaded.code  # type: ignore[attr-defined]  # lives as long as it is called
    return run


@kept_native
def workers() -> Workers | None:
    """Those of this process; None where there cannot be any."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in FUTEX or sys.byteorder != "little":
        return None
    names = ["share", "ready", "worker"]
    with compiler():
        loaded = local().compile_own(_text(machine), names, "threads of chunks")
    share = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3)
    ready = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 2)
    addresses = [address_of(loaded.functions[name]) for name in names]
    made = Workers(share(addresses[0]), ready(addresses[1]), addresses[2])
    for needed in (loaded.code, made):  # threads run it to the end
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(needed))
    os.register_at_fork(after_in_child=made.forget)
    return made


def _text(machine: str) -> str:
    pause, hint = PAUSE[machine]
    words = WORDS | {
        "pause": f"{pause}({hint})", "pause.type": f"{pause}({hint.split(' ')[0]})",
        "futex": FUTEX[machine], "spin": SPIN, "glance": GLANCE, "wake": WAKE, "late": LATE,
        "wanted": WANTED, "patience": PATIENCE, "stopped": STOPPED,
    }
    return fill(TEXT.replace("<job>\n", JOB), words)
