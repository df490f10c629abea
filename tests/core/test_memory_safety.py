"""Native code reads and writes nothing outside its arrays: they end, or start, at a forbidden page.

Run in another process, which a stray access kills.
"""

import subprocess
import sys

import numpy as np
import pytest

import functrans as ft

PRELUDE = """
import ctypes, mmap, sys
import numpy as np
import functrans as ft
from functrans._compile.run import native as framed, native

libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
KEPT = []


def guarded(shape, dtype=float, at_end=True):
    '''An array between forbidden pages, which it touches at one end.'''
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    size = int(np.prod(shape)) * dtype.itemsize
    pages = -(-max(size, 1) // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        assert libc.mprotect(ctypes.c_void_p(base + page * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    start = PAGE + (pages * PAGE - size if at_end else 0)
    KEPT.append(memory)
    return np.ndarray(shape, dtype, memory, start)
"""

FILLED = PRELUDE + """
def filled(shape, dtype, at_end):
    x = guarded(shape, dtype, at_end)
    x[...] = np.cos(np.arange(x.size)).reshape(shape) * 3
    return x


def check(f, shapes, dtypes=(np.float64, np.float32)):
    for dtype in dtypes:
        program = ft.make_program(f)(*[filled(s, dtype, True) for s in shapes])
        compiled = native.NativeProgram(program)
        for at_end in (True, False):
            xs = [filled(s, dtype, at_end) for s in shapes]
            made = []

            def ours(shape, dtype, at_end=at_end):
                made.append(guarded(shape, dtype, at_end))
                return made[-1]

            framed.empty = ours
            got = compiled._code.in_steps(xs)
            assert made or not compiled.llvm, "results were to be guarded as well"
            with np.errstate(all="ignore"):
                expected = f(*xs)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for y, e in zip(got, expected, strict=True):
                np.testing.assert_allclose(y, e, rtol=1e-4, atol=1e-4)
"""

# Long enough for several vectors, short enough for remainders, and around a whole page.
LENGTHS = [1, 2, 7, 8, 15, 17, 64, 511, 513]
PROGRAMS = {
    "entrywise": ("lambda x: np.exp(-x * x) * np.sin(x) + np.where(x > 0, x, 2.0)", "[(n,)]"),
    "slices": ("lambda x: x[1:] - x[:-1] + x[::-1][1:]", "[(n + 1,)]"),
    "steps": ("lambda x: x[::2] * 2 + x[1::2], x[-1::-3] + 1", "[(2 * n,)]"),
    "windows": ("lambda x: ft.grad(lambda x: np.sum(x[1:] * x[:-1] ** 2) + x[-1] ** 2)(x)",
                "[(n + 1,)]"),
    "windows of axes": ("lambda x: ft.grad(lambda x: np.sum(np.sin(x[1:, :-1] * x[:-1, 1:])))(x)",
                        "[(4, n + 1)]"),
    "broadcast": ("lambda x, y: (x[:, None] * y + x[:, None], y[None, ::-1] * x[:, None])",
                  "[(n,), (3,)]"),
    "transposed": ("lambda x: (x.T * 2 + 1, np.transpose(x, (1, 0))[::-1] - 1)", "[(n, 3)]"),
    "reductions": ("lambda x: (x.sum(axis=0), x.max(axis=1), x.prod(), (x > 0).sum(axis=0), "
                   "x.min())", "[(n, 5)]"),
    "joined": ("lambda x, y: np.concatenate([x, y * 2, x]) + 1, np.stack([x, x + 1], axis=1)",
               "[(n,), (3,)]"),
    "rolled": ("lambda x: np.roll(x, 1) * np.roll(x, -2) + np.flip(x)", "[(n,)]"),
    "zero sizes": ("lambda x: (x[:0] + 1, x[:0].sum(), x[n:] * 2, np.concatenate([x[:0], x]) + 1)",
                   "[(n,)]"),
    "indexed": ("lambda x: (np.exp(x[np.array([0, -1, 0])]), ft.grad(lambda x: np.sum("
                "np.sin(x)[np.array([[n - 1, 0], [-n, 0]])] ** 2))(x))", "[(n,)]"),
    "long sums": ("lambda x: (np.exp(x).sum(), np.sin(x).sum(0), (x - x.sum()).sum(1))",
                  "[(n, 40)]"),
    "hessian": ("lambda x: ft.hessian(lambda x: np.sum(x[1:] * np.sin(x[:-1])))(x)",
                "[(min(n, 16) + 1,)]"),
}


def run_apart(text):
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"


needs_mprotect = pytest.mark.skipif(sys.platform != "linux", reason="protects pages with libc")


@needs_mprotect
def test_a_guarded_array_kills_who_reads_behind_it():
    text = PRELUDE + "ctypes.string_at(guarded(3).ctypes.data, 25)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True).returncode < 0
    run_apart(PRELUDE + "ctypes.string_at(guarded(3).ctypes.data, 24)")


PLANTED = """
from functrans._compile.emit.loop_nest import Nest

address = Nest.address
Nest.address = lambda self, b, t, offset, *rest: address(self, b, t, offset + 1, *rest)
check(lambda x: x * 2, [(8,)])
"""


@needs_mprotect
def test_native_code_that_is_off_by_one_does_not_survive():
    done = subprocess.run([sys.executable, "-c", FILLED + PLANTED], capture_output=True, text=True)
    assert done.returncode < 0, done.stderr


@needs_mprotect
def test_nothing_outside_the_arrays_is_touched():
    run_apart(FILLED + checks_of(PROGRAMS, LENGTHS))


def checks_of(programs, lengths):
    """Checks of programs in one process, which says at which of them it is, should it be killed."""
    lines = []
    for name, (text, shapes) in programs.items():
        lines.append(f"print({name!r}, file=sys.stderr, flush=True)")
        lines += [f"n = {n}\ncheck({_grouped(text)}, {shapes})" for n in lengths]
    return "\n".join(lines)


def _grouped(text):
    """A lambda that returns all that stands behind its colon."""
    head, _, body = text.partition(":")
    return f"{head}: ({body.strip()})"


@needs_mprotect
def test_small_integers_and_booleans_stay_inside_their_arrays():
    text = "lambda x, c: (np.where(c != 0, x, -x), (c != 0) & (x > 0), x.max(), (x // 2) % 5)"
    run_apart("\n".join([
        FILLED, *[f"n = {n}\ncheck({text}, [(n,), (n,)], (np.int64, np.int32, np.int8))"
                  for n in LENGTHS],
    ]))


THREADS = """
import threading, sys
import numpy as np
import functrans as ft

sys.setswitchinterval(1e-5)
calls = [
    ft.jit(ft.grad(lambda x: np.sum(np.exp(-x * x) * np.sin(x) + np.tanh(x[::-1])))),
    ft.jit(lambda x: (np.linalg.inv(np.eye(3) + x[0] ** 2 * np.ones((3, 3))), np.cumsum(x) * 2)),
    ft.jit(ft.hessian(lambda x: np.sum(x[1:] * x[:-1] ** 2))),
]
sizes = range(2, 8)
arguments = [np.linspace(0, k + 1, n) for n in sizes for k in range(8)]
with ft.config(jit=False):
    expected = [[ft.tree.leaves(f(x)) for x in arguments] for f in calls]
start, wrong, done = threading.Barrier(8), [], []

def work(k):
    start.wait()
    for _ in range(20):
        for f, answers in zip(calls, expected):
            for i in range(k, len(arguments), 8):
                for y, e in zip(ft.tree.leaves(f(arguments[i])), answers[i]):
                    if not np.allclose(y, e, rtol=1e-12, atol=1e-12):
                        wrong.append((k, i))
    done.append(k)

threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong and len(done) == 8, (wrong[:5], done)
"""


def test_eight_threads_compile_and_call_the_same_functions_at_once():
    run_apart(THREADS)


def test_a_result_outlives_the_function_that_made_it():
    y = ft.jit(lambda x: x * 2 + 1)(np.arange(4.0))
    for n in range(5):
        ft.jit(lambda x, n=n: x * n)(np.arange(4.0))
    np.testing.assert_array_equal(y, [1.0, 3.0, 5.0, 7.0])


def test_outputs_in_one_slot_of_memory_are_separate_arrays():
    a, b = ft.jit(lambda x: (x + 1, x.reshape(2, 2) + 1))(np.arange(4.0))
    assert not np.shares_memory(a, b)
