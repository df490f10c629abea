"""How large arrays are processed: the one policy, whose numbers are in ``sizes``."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import STRONG, is_finite
from functrans._core.primitive import Primitive
from functrans._kernels import memory, sizes
from functrans.config import NATIVE, config, settings

# ---- Blocks of rows over threads. Threads live for one call: none survives a fork or an exception


def cores() -> int:
    """How many threads to use: as set, else as many as this process may use processors."""
    if config.threads is not None:
        return config.threads
    affinity = getattr(os, "sched_getaffinity", None)
    have = len(affinity(0)) if affinity else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(have, max(1, int(wanted))) if wanted.isdigit() else have


def run_blocks(
    work: Callable[[int, int], None], rows: int, width: int = 1, block: int | None = None
) -> None:
    """Call ``work(start, stop)`` on blocks of ``rows``, of ``width`` entries each: all of them
    once, on threads where they are large; ``block`` entries at a time or so many as suit."""
    threads = cores() if rows * width >= sizes.THREADED else 1
    step = max(1, (block or (sizes.WIDE if threads > 1 else sizes.BLOCK)) // width)
    share(lambda start: work(start, min(start + step, rows)), range(0, rows, step), threads)


def share(work: Callable[[int], None], pieces: Sequence[int], threads: int) -> None:
    """Call ``work`` on each piece; as many threads take the next piece whenever they are free."""
    rest = iter(pieces)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def worker() -> None:
        while not failures:
            with lock:
                piece = next(rest, None)
            if piece is None:
                return
            try:
                work(piece)
            except BaseException as e:  # handed to the caller below, whatever it is
                failures.append(e)

    # each in the caller's context, to which np.errstate belongs
    helpers = [
        threading.Thread(target=copy_context().run, args=(worker,))
        for _ in range(min(threads, len(pieces)) - 1)
    ]
    for t in helpers:
        t.start()
    worker()
    for t in helpers:
        t.join()
    if failures:
        raise failures[0]


# ---- How large arrays are processed: the one policy, whose numbers are in ``sizes``
#
# NumPy makes a pass over memory for each step, on one processor. For arrays larger than the cache:
#
# - rows for which NumPy makes several passes, or goes entry by entry, have a size ``native_from``
#   in the table. From that size they and their backward rules are native code, compiled once for
#   each shape and dtype: ``forward`` and ``backward``. If nothing can or should be compiled, NumPy
#   does it as before;
# - softmax and its kin, what the shim has of activations, and ufuncs that NumPy computes number by
#   number have kernels for arrays of any shape (``_compile/run/row_kernels.py``), which pay much
#   earlier: ``in_one_pass``, ``valued``; rows that are read at an index or added there too
#   (``add_kernels.py``): ``take_rows``, ``add_rows``;
# - kernels that multiply by a sparse matrix (``csr_kernels.py``): ``sparse_product``;
# - memory of arrays that are dropped is kept for the next (``memory.py``): ``keep_memory``;
# - what such rows compute along the last axis is done on blocks of rows: ``by_rows``;
# - threads share all other ufuncs, in forward runs and where cotangents are added up:
#   ``elementwise``. Their loops stay NumPy's (``_compile/run/ufunc_loops.py``), so that values are
#   NumPy's to the last bit and warnings are not lost;
# - the walk takes fused elementwise ops block by block, or by code that is compiled for them
#   (``_transforms/reverse/cotangents.py``), and adds cotangents in place (``cotangents.py``).
#
# A chain of NumPy calls on blocks that fit the second-level cache reads and writes main memory
# once, and keeps NumPy's vectorised functions. What ``jit`` compiles has blocks of its own
# (``_compile/schedule/tiles.py``). All native code has the same threads
# (``_compile/run/workers.py``).

# ---- native code


_native: Any  # nothing large is computed until the package is loaded


def install(native: Any) -> None:
    """Called once by the package with ``_transforms/staging/native_rows.py``, of a floor above."""
    global _native
    _native = native


def keep_memory(x: np.ndarray) -> None:
    """Note an array: once there are large ones, memory of those that are dropped is kept."""
    if x.nbytes >= sizes.KEPT:
        memory.keep(x.nbytes)


def _compiles(xs: Sequence) -> bool:
    """Whether ``xs`` are plain numbers of kinds that compile, and compiling is not switched off."""
    return config.jit and all(
        [type(x) in STRONG and x.dtype.char in "fdFD" and x.dtype.isnative for x in xs]
    )


def compiled(f: Callable, static: tuple, xs: Sequence) -> list | None:
    """``f(static, *xs)`` by code that is compiled for it; None where none is."""
    return _native.compiled(f, static, xs) if _compiles(xs) else None


def forward(row: Primitive, impl: Callable, native_from: str) -> Callable:
    """The function of ``row``: natively where its first operand is large, else ``impl``."""

    def staged(params: tuple, *xs: Any) -> list:
        return [row(*xs, **dict(params))]

    @functools.wraps(impl)
    def run(x: Any, *xs: Any, **params: Any) -> Any:
        if type(x) is not np.ndarray or x.size < sizes.LARGE:  # the usual case
            return impl(x, *xs, **params)
        ys = None
        if x.size >= getattr(sizes, native_from) and _compiles((x, *xs)):
            ys = _native.compiled(staged, tuple(params.items()), (x, *xs))
        return impl(x, *xs, **params) if ys is None else ys[0]

    return run


# What a rule takes instead of a value that it does not read, and where it takes values.
_ABSENT, _HERE = Aval | None, object()
_SIZED = np.ndarray | Aval


def backward(vjp: Callable, native_from: str) -> Callable:
    """The vjp rule of a row: natively where its first operand is large, else ``vjp``."""

    def staged(static: tuple, *values: Any) -> list:
        absent, wanted, params = static
        rest = iter(values)
        ct, y, *xs = [next(rest) if a is _HERE else a for a in absent]
        cts = vjp(ct, y, xs, wanted, **dict(params))
        return [c for c, w in zip(cts, wanted, strict=True) if w]

    @functools.wraps(vjp)
    def rule(ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool], **params: Any) -> Sequence:
        x = xs[0]
        if type(ct) in STRONG and isinstance(x, _SIZED) and x.size >= getattr(sizes, native_from):
            every = ct, y, *xs
            values = [v for v in every if not isinstance(v, _ABSENT)]
            absent = tuple([v if isinstance(v, _ABSENT) else _HERE for v in every])
            static = absent, tuple(wanted), tuple(params.items())
            cts = _native.compiled(staged, static, values) if _compiles(values) else None
            if cts is not None:
                rest = iter(cts)
                return [next(rest) if w else None for w in wanted]
        return vjp(ct, y, xs, wanted, **params)

    return rule


# ---- native code of any size

_examples: ContextVar[bool] = ContextVar("_examples", default=False)


class Examples:
    """A block in which kernels give way to NumPy, which has nothing to compile first: what is
    computed there serves once."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = _examples.set(True)

    def __exit__(self, *error: object) -> None:
        _examples.reset(self.token)


# C's functions that NumPy calls for one entry after the other in single precision; each has a
# kernel of its name, whose values are rounded from double precision.
SCALAR = frozenset({
    "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "expm1",
    "log2", "log10", "exp2",
})


def with_kernel(ufunc: np.ufunc, kernel: str, kinds: str = "d") -> Callable:
    """``ufunc``, of large arrays by ``kernel`` where ``config.values`` leaves that to us.

    Where that is not finite NumPy does it, and warns.
    """

    def large_value(x: np.ndarray, *xs: Any) -> np.ndarray:
        if x.dtype.char in kinds and settings().values == NATIVE:
            y = in_one_pass(kernel, *xs, least=sizes.VALUES)
            if y is not None and is_finite(y):
                return y
        return ufunc(*xs)

    @functools.wraps(ufunc)
    def of_one(x: Any) -> Any:
        if type(x) is np.ndarray and x.size >= sizes.VALUES:
            return large_value(x, x)
        return ufunc(x)

    @functools.wraps(ufunc)
    def of_two(x1: Any, x2: Any) -> Any:
        x = x1 if type(x1) is np.ndarray else x2
        if type(x) is np.ndarray and x.size >= sizes.VALUES:
            return large_value(x, x1, x2)
        return ufunc(x1, x2)

    return of_one if ufunc.nin == 1 else of_two


# Exponents for which there are kernels.
WHOLE = range(3, 9)


def whole_power(x: np.ndarray, n: float) -> np.ndarray | None:
    """``x**n`` by products, for small whole ``n``; None where ``np.power`` should do it."""
    if x.size < sizes.VALUES or n not in WHOLE:
        return None
    y = in_one_pass(f"power{int(n)}", x, least=sizes.VALUES)
    return y if y is not None and is_finite(y) else None


@functools.wraps(np.power)
def power(x1: Any, x2: Any) -> np.ndarray:
    if type(x1) is np.ndarray and type(x2) in (int, float) and config.values == NATIVE:
        y = whole_power(x1, x2)
        if y is not None:
            return y
    return np.power(x1, x2)


def ufunc_of(impl: Callable) -> Any:
    """The ufunc that ``impl`` is, or computes the values of."""
    return getattr(impl, "__wrapped__", impl)


def in_one_pass(name: str, *xs: Any, axis: tuple[int, ...] | None = None,
                filled: Sequence[np.ndarray] = (), least: int | None = None) -> np.ndarray | None:
    """The kernel ``name`` of arrays of one shape, row by row along ``axis``, if it is the last.

    None where they are small, of other types, or not in order, and where nothing compiles. Numbers
    are repeated, also in an array, as the cotangent of a sum has one; repeated rows are written
    out. New arrays of a number a row are ``filled`` too. ``least``: the size from which it pays, if
    not that of most.
    """
    for x in xs:
        if type(x) is np.ndarray and x.ndim:
            break
    else:
        return None
    shape, dtype, width = x.shape, x.dtype, 1
    if x.size < (sizes.PASSES if least is None else least) or dtype.char not in "fd":
        return None
    if axis is not None:
        width = shape[-1]
        if axis != (len(shape) - 1,) or not sizes.NARROWEST <= width <= sizes.WIDEST:
            return None
    if not (settings().compiles and dtype.isnative):
        return None
    if _examples.get():
        return None
    arrays, numbers = [*xs], 0
    if len(xs) > 1 or not x.flags.carray:
        arrays, numbers = _in_order(xs, shape, dtype)
        if not arrays:
            return None
    for i, v in enumerate(filled, len(xs)):
        if not v.flags.c_contiguous:
            numbers |= 1 << i
    return _native.kernels()(name, width, [*arrays, *filled], numbers, like=x)


def _in_order(xs: tuple[Any, ...], shape: tuple[int, ...], dtype: np.dtype) -> tuple[list, int]:
    """Arrays of one shape and dtype, aligned and in order, or of one number, for each of which
    there is a bit; none if some are not, nor can be written out so."""
    ordered, numbers = [], 0
    for i, v in enumerate(xs):
        if type(v) is not np.ndarray or not v.ndim:
            v = _number(v, dtype)
            if v is None:
                return [], 0
            numbers |= 1 << i
        elif v.shape != shape or v.dtype is not dtype:
            return [], 0
        elif not (flags := v.flags).carray:
            if not flags.c_contiguous:
                if not any(v.strides):
                    numbers |= 1 << i
                elif 0 in v.strides:
                    v = v.copy()
                else:
                    return [], 0
            if not v.flags.aligned:
                return [], 0
        ordered.append(v)
    return ordered, numbers


def _number(v: Any, dtype: np.dtype) -> np.ndarray | None:
    """A number as an array; None for what is none, or would change the type."""
    if type(v) is float or type(v) is int:
        return np.array(v, dtype)
    return np.asarray(v) if type(v) in STRONG and v.dtype is dtype else None


def row_sums(x: np.ndarray) -> np.ndarray | None:
    """``np.add.reduce(x, -1)`` to the last bit, of short rows, each of which takes NumPy 15 ns
    before it adds anything; None where NumPy should do it."""
    dtype, width = x.dtype, x.shape[-1]
    if x.size < sizes.ROWS or not sizes.NARROWEST <= width <= sizes.SHORT:
        return None
    if dtype.char not in "fd" or not (dtype.isnative and x.flags.carray and settings().compiles):
        return None
    if _examples.get():
        return None
    y = _native.kernels()("row_sums", width, [x], 0, np.empty(x.shape[:-1], dtype))
    return y if y is not None and is_finite(y) else None  # NumPy warns of others


def recurrence(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool) -> np.ndarray | None:
    """``y_k = a_k y_(k-1) + b_k`` along an axis, for which Python takes 60 ns an entry; None where
    NumPy should do it, and where a number is not finite: its product with zero may be zero."""
    dtype = b.dtype
    if not (b.size >= sizes.PASSES and a.shape == b.shape and a.dtype is dtype
            and dtype.char in "fd" and dtype.isnative and settings().compiles):
        return None
    if _examples.get():
        return None
    a, b = [np.require(np.moveaxis(v, axis, -1), None, ["C", "A"]) for v in (a, b)]
    name = "recurrence_back" if reverse else "recurrence"
    y = _native.kernels()(name, b.shape[-1], [a, b])
    return np.moveaxis(y, -1, axis) if y is not None and is_finite(y) else None


def scaled_rows(x: np.ndarray, factor: Any, axis: tuple[int, ...]) -> np.ndarray:
    """``x`` times a number for each row along ``axis``."""
    if axis == (x.ndim - 1,) and x.flags.c_contiguous and factor.dtype == x.dtype:
        y = in_one_pass("scaled_rows", x, axis=axis, filled=(np.ascontiguousarray(factor),),
                        least=sizes.SCALED)
        if y is not None:
            return y
    kept = [1 if i in axis else n for i, n in enumerate(x.shape)]
    return elementwise(np.multiply, x, factor.reshape(kept) if factor.ndim else factor)


def take_rows(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The rows of ``x``, which is in order, at an index of C's integers."""
    size = index.size * (x.size // len(x)) if x.size else 0
    if size >= sizes.PARALLEL and x.dtype.char in "fdFD" and x.dtype.isnative and config.jit:
        y = np.empty(index.shape + x.shape[1:], x.dtype)
        if x.flags.aligned and _native.read(np.require(index, None, ["C", "A"]), y, x):
            return y
    return x.take(index, 0)  # the same as x[index], in up to half the time


def add_rows(index: Any, v: Any, y: np.ndarray) -> bool:
    """Whether the rows of ``v`` were added to those of ``y`` at ``index``, by a kernel.

    Not where they are few, of other types or another shape, where an index is out of range, and
    where nothing compiles.
    """
    if not (type(v) is type(index) is np.ndarray and v.size >= sizes.PASSES and config.jit
            and y.dtype == v.dtype and y.dtype.char in "fdFD" and y.dtype.isnative and y.size
            and y.flags.carray and index.dtype == np.int64 and index.dtype.isnative
            and y.ndim > 1 and v.shape == index.shape + y.shape[1:]):
        return False
    return _native.added(np.require(index, None, ["C", "A"]), np.require(v, None, ["C", "A"]), y)


def sparse_product(A: Any, x: np.ndarray) -> np.ndarray:
    """``A @ x`` of a sparse matrix of SciPy's with a plain array."""
    if (A.format == "csr" and x.size and A.data.size * (x.size // len(x)) >= sizes.SPARSE
            and A.data.dtype.char == x.dtype.char in ("f", "d") and config.jit
            and all([v.flags.carray and v.dtype.isnative for v in (A.data, A.indices, A.indptr)])):
        y = _native.sparse_product(A, np.require(x, None, ["C", "A"]))
        if y is not None:
            return y
    return A @ x


# ---- blocks


def by_rows(f: Callable, axis: tuple[int, ...], x: np.ndarray, *ys: Any, dtype: Any = None,
            reduces: bool = False) -> np.ndarray:
    """``f(axis, x, *ys)``, on blocks of rows where ``x`` is large and ``axis`` its last.

    The result, of ``dtype`` (None: that of ``x``), has the shape of ``x``, or one number for each
    row if ``f`` ``reduces``. ``ys`` are reduced over ``axis`` and reach ``f`` with length 1 there.
    """
    if not (
        x.size >= sizes.LARGE and axis == (x.ndim - 1,) and x.shape[-1] <= sizes.LARGE
        and x.flags.c_contiguous
    ):
        if ys:
            kept = tuple([1 if i in axis else n for i, n in enumerate(x.shape)])
            ys = tuple([y.reshape(kept) for y in ys])
        return f(axis, x, *ys)
    *shape, width = x.shape
    out = np.empty(shape if reduces else x.shape, x.dtype if dtype is None else dtype)
    rows, flat = x.reshape(-1, width), out.reshape(-1) if reduces else out.reshape(-1, width)
    ys = tuple([y.reshape(-1, 1) for y in ys])

    def block(start: int, stop: int) -> None:
        flat[start:stop] = f((1,), rows[start:stop], *[y[start:stop] for y in ys])

    run_blocks(block, *rows.shape)
    return out


# Ufuncs that take less than 0.2 ns an entry of double precision, where others take about 0.8.
ARITHMETIC = frozenset({
    np.add, np.subtract, np.multiply, np.divide, np.negative, np.positive, np.absolute, np.fabs,
    np.maximum, np.minimum, np.square, np.conjugate, np.sign, np.copysign,
})


def elementwise(impl: Any, *xs: Any, out: np.ndarray | None = None) -> np.ndarray:
    """``impl`` on operands of which some are large: a share of a ufunc's work for each thread."""
    x = xs[0] if _has_axes(xs[0]) else xs[-1]
    work = x.nbytes * (0.025 if impl in ARITHMETIC else 0.08)
    if type(impl) is np.ufunc and work >= sizes.PARALLEL_WORK:
        if settings().compiles and (y := _native.looped(impl, xs, out, work)) is not None:
            return y
        if x.size >= sizes.THREADED:
            return _by_python(impl, xs, out)
    return impl(*xs) if out is None else impl(*xs, out=out)


def _by_python(impl: np.ufunc, xs: Sequence, out: np.ndarray | None) -> np.ndarray:
    """The same on threads of Python's."""
    shapes = {x.shape for x in xs if _has_axes(x)}
    shape = max(shapes, key=math.prod)
    width = 1 if len(shapes) == 1 else shape[-1]
    column = (*shape[:-1], 1)  # one number a row
    if not all([not _has_axes(x) or (x.shape in (shape, column) and x.flags.c_contiguous)
                for x in xs]):
        return impl(*xs) if out is None else impl(*xs, out=out)
    rows = [x.reshape(-1, width if x.shape == shape else 1) if _has_axes(x) else x for x in xs]
    out = np.empty(shape, _result_dtype(impl, xs)) if out is None else out
    flat = out.reshape(-1, width)
    if width == 1:  # all of one shape
        rows, flat = [x.reshape(-1) if _has_axes(x) else x for x in xs], out.reshape(-1)

    def block(start: int, stop: int) -> None:
        impl(*[x[start:stop] if _has_axes(x) else x for x in rows], out=flat[start:stop])

    run_blocks(block, len(flat), width, max(sizes.BLOCK, -(-out.size // cores())))
    return out


def _has_axes(x: Any) -> int:
    return type(x) is np.ndarray and x.ndim


def _result_dtype(impl: np.ufunc, xs: Sequence) -> np.dtype:
    """NumPy's own choice, from empty slices."""
    return impl(*[x.reshape(-1)[:0] if _has_axes(x) else x for x in xs]).dtype
