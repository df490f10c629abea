"""Functions of single entries, creators, tests and dtypes under NumPy's names."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core import scipy_names
from functrans._core.array import PYTHON_SCALARS, dtype_of, plain
from functrans._core.bind import AnyArray, Tracer, known_value
from functrans._core.warned import STATE, USUAL, WARNED
from functrans._ops import elementwise as ops
from functrans.errors import ConcretizationError, user_line
from functrans.numpy.protocols import UFUNCS as ROWS
from functrans.numpy.standard import require_cast
from functrans.numpy.structure import (
    are_traced,
    as_operand,
    astype,
    broadcast_to,
    common_dtype,
    is_traced,
    moveaxis,
    numpy_like,
    reshape,
)


def _scalar_or_operand(x: Any) -> Any:
    """``x`` as an operand; a Python number stays one, of weak type."""
    return x if type(x) in PYTHON_SCALARS else as_operand(x)


# ---- ufuncs


def power(x1: Any, x2: Any) -> AnyArray:
    """``x1`` to the power ``x2``, by the cheapest op."""
    square = isinstance(x1, Tracer) and x1.dtype.kind != "b"  # of booleans x1**2 is of 8 bits
    return x1**x2 if square else ops.power(x1, x2)


def divmod_(x1: Any, x2: Any) -> tuple:
    """Quotient rounded down, and remainder."""
    return ops.floor_divide(x1, x2), ops.remainder(x1, x2)


def modf(x: Any) -> tuple:
    """Fractional and integral parts, both with the sign of ``x``."""
    x = as_operand(x)
    x = x if x.dtype.kind == "f" else x.astype(np.modf(np.empty(0, x.dtype))[0].dtype)
    whole = ops.trunc(x)
    return ops.where(ops.isinf(x), 0, ops.where(x == whole, ops.copysign(0, x), x - whole)), whole


def frexp(x: Any) -> tuple:
    """Mantissa in [0.5, 1), which has a derivative, and exponent of two."""
    exponent = ops.exponent(x)
    return ops.ldexp(x, -exponent), exponent


def isnan(x: Any) -> AnyArray:
    """Whether an entry is not a number; an error where a solver in C would lose a derivative."""
    if isinstance(x, Tracer) and scipy_names.asked_by_solver():
        float(x)
    return ops.isnan(x)


UFUNCS = {
    np.power: power, np.divmod: divmod_, np.modf: modf, np.frexp: frexp, np.isnan: isnan,
    np.degrees: ops.rad2deg, np.radians: ops.deg2rad,
}


def _ufunc(name: str) -> Callable:
    ufunc = getattr(np, name)
    row = UFUNCS.get(ufunc) or ROWS[ufunc]

    def named(*xs: Any, **options: Any) -> Any:
        if not are_traced(xs):
            if STATE.get() is not USUAL:
                return ufunc(*xs, **options)
            token = STATE.set(WARNED)  # its warnings are then at the user's line
            try:
                return ufunc(*xs, **options)
            finally:
                STATE.reset(token)
        xs = tuple(map(_scalar_or_operand, xs))
        whole = bool(options) or len(xs) > ufunc.nin  # an operand too many is out=
        return ufunc(*xs, **options) if whole else row(*xs)

    named.__name__ = named.__qualname__ = name
    named.__doc__ = f"numpy.{name}, entry by entry."
    return named


_UFUNC_NAMES = [
    name for name, value in vars(np).items()  # dir(np) would import all its lazy submodules
    if isinstance(value, np.ufunc) and (value in UFUNCS or value in ROWS)
]
globals().update({name: _ufunc(name) for name in _UFUNC_NAMES})

# ---- rounding and bounds


@numpy_like(np.round)
def round(a, decimals=0, out=None):
    """``a`` rounded to ``decimals`` decimals; its derivative is zero."""
    a, decimals = as_operand(a), operator.index(decimals)
    if a.dtype.kind == "c":
        return ops.from_parts(round(np.real(a), decimals), round(np.imag(a), decimals))
    if a.dtype.kind in "iu" and decimals >= 0:
        return a
    if a.dtype.kind == "b" and decimals != 0:
        raise TypeError("np.round has no decimals of booleans")
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals == 0:
        return ops.rint(a)  # of booleans float16, as NumPy's
    if decimals > 0:
        return astype(ops.rint(a * scale) / scale, a.dtype)
    return astype(ops.rint(a / scale) * scale, a.dtype)


around = round


@numpy_like(np.fix)
def fix(x, out=None):
    """``x`` rounded towards zero; its derivative is zero."""
    return ops.trunc(as_operand(x))


@numpy_like(np.clip)
def clip(a, a_min=np._NoValue, a_max=np._NoValue, out=None, *, min=np._NoValue, max=np._NoValue):
    """``a`` limited to two bounds, either of which may be None; at a bound its slope is 1."""
    low = _bind(a_min, min)
    high = _bind(a_max, max)
    a = as_operand(a)
    if low is None and high is None:
        return a
    if a.dtype.kind in "iub":
        return _clipped_integers(a, low, high)
    return ops.clip(a, -np.inf if low is None else low, np.inf if high is None else high)


def _clipped_integers(a, low, high):
    if a.dtype.kind in "iu":  # bounds that no entry reaches may be beyond the dtype
        limits = np.iinfo(a.dtype)
        low = None if type(low) is int and low <= limits.min else low
        high = None if type(high) is int and high >= limits.max else high
    y = a if low is None else ops.maximum(a, low)
    y = y if high is None else ops.minimum(y, high)
    if a.dtype.kind != "b":
        return y
    # NumPy promotes all three together
    return y.astype(common_dtype(a, *[b for b in (low, high) if b is not None]))


def _bind(first, second):
    if second is not np._NoValue:
        if first is not np._NoValue and first is not None:
            raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are "
                             "provided is forbidden.")
        first = second
    return None if first is None or first is np._NoValue else _scalar_or_operand(first)


@numpy_like(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """``x`` with NaN and infinities replaced; only unchanged entries have a derivative."""
    x = as_operand(x)
    if x.dtype.kind == "c":
        return ops.from_parts(*[nan_to_num(part, copy, nan, posinf, neginf)
                                for part in (np.real(x), np.imag(x))])
    if x.dtype.kind != "f":
        return x
    bounds = np.finfo(x.dtype)
    others = [nan, bounds.max if posinf is None else posinf,
              bounds.min if neginf is None else neginf]
    for v, there in zip(others, (ops.isnan(x), x == np.inf, x == -np.inf), strict=True):
        v = as_operand(v)
        require_cast(v, x.dtype, "same_kind")
        x = ops.where(there, astype(v, x.dtype), x)
    return x


@numpy_like(np.sinc)
def sinc(x):
    """The function ``sin(pi x) / (pi x)``, 1 at 0, with accurate derivatives near 0."""
    return ops.sinc_nth(np.pi * as_operand(x), 0)


# ---- complex numbers


@numpy_like(np.real)
def real(val):
    """The real part; for a real array, the array itself."""
    val = as_operand(val)
    return ops.real(val) if val.dtype.kind == "c" else val


@numpy_like(np.imag)
def imag(val):
    """The imaginary part; zeros for a real array."""
    val = as_operand(val)
    return ops.imag(val) if val.dtype.kind == "c" else np.zeros(val.shape, val.dtype)


@numpy_like(np.angle)
def angle(z, deg=False):
    """The argument of a complex number, in (-pi, pi]."""
    z = as_operand(z)
    y = ops.arctan2(imag(z), real(z)) if z.dtype.kind == "c" else ops.arctan2(0, z)
    return ops.rad2deg(y) if deg else y


@numpy_like(np.real_if_close)
def real_if_close(a, tol=100):
    """``a`` without imaginary parts, if they are all close to zero."""
    a = as_operand(a)
    if a.dtype.kind != "c":
        return a
    value = known_value(a)
    if value is None:
        raise ConcretizationError(
            f"{user_line()}: np.real_if_close: the dtype of the result would depend on the values "
            f"of {a!r}, which are not known. Use np.real(x)."
        )
    return real(a) if np.isrealobj(np.real_if_close(value, tol)) else a


@numpy_like(np.iscomplexobj)
def iscomplexobj(x):
    """Whether ``x`` is of a complex type."""
    return as_operand(x).dtype.kind == "c"


@numpy_like(np.isrealobj)
def isrealobj(x):
    """Whether ``x`` is not of a complex type."""
    return not iscomplexobj(x)


@numpy_like(np.iscomplex)
def iscomplex(x):
    """Which entries have an imaginary part."""
    return imag(x) != 0


@numpy_like(np.isreal)
def isreal(x):
    """Which entries have no imaginary part."""
    return imag(x) == 0


# ---- tests


@numpy_like(np.isclose)
def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Which entries agree to a tolerance relative to ``b``."""
    a, b = _scalar_or_operand(a), _scalar_or_operand(b)
    b = b * 1.0 if dtype_of(b).kind == "b" else b
    near = (ops.absolute(a - b) <= atol + rtol * ops.absolute(b)) & ops.isfinite(b)
    close = near | (a == b)
    return close | (ops.isnan(a) & ops.isnan(b)) if equal_nan else close


@numpy_like(np.allclose)
def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether all entries agree to a tolerance relative to ``b``."""
    return np.all(isclose(a, b, rtol, atol, equal_nan))


@numpy_like(np.array_equal)
def array_equal(a1, a2, equal_nan=False):
    """Whether shapes and entries are the same."""
    a1, a2 = as_operand(a1), as_operand(a2)
    if a1.shape != a2.shape:
        return False
    same = a1 == a2
    return np.all(same | (ops.isnan(a1) & ops.isnan(a2)) if equal_nan else same)


@numpy_like(np.array_equiv)
def array_equiv(a1, a2):
    """Whether shapes fit by broadcasting and entries are the same."""
    a1, a2 = as_operand(a1), as_operand(a2)
    try:
        np.broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return False
    return np.all(a1 == a2)


@numpy_like(np.isposinf)
def isposinf(x, out=None):
    """Which entries are positive infinity."""
    return as_operand(x) == np.inf


@numpy_like(np.isneginf)
def isneginf(x, out=None):
    """Which entries are negative infinity."""
    return as_operand(x) == -np.inf


# ---- shapes and dtypes


@numpy_like(np.shape)
def shape(a):
    """The lengths of the axes."""
    return as_operand(a).shape


@numpy_like(np.ndim)
def ndim(a):
    """The number of axes."""
    return as_operand(a).ndim


@numpy_like(np.size)
def size(a, axis=None):
    """The number of entries, in all or along ``axis``."""
    a = as_operand(a)
    return a.size if axis is None else a.shape[operator.index(axis)]


@numpy_like(np.result_type)
def result_type(*arrays_and_dtypes):
    """The dtype that NumPy's promotion gives."""
    return np.result_type(*[x.dtype if isinstance(x, Tracer) else x for x in arrays_and_dtypes])


@numpy_like(np.can_cast)
def can_cast(from_, to, casting: Any = "safe"):
    """Whether one dtype can be cast to another."""
    return np.can_cast(from_.dtype if isinstance(from_, Tracer) else from_, to, casting)


@numpy_like(np.common_type)
def common_type(*arrays):
    """The inexact type that holds all of the arrays."""
    return np.common_type(*[np.empty(0, as_operand(a).dtype) for a in arrays])


# ---- creators


def array(object, dtype=None, *, copy=True, order: Any = "K", subok=False, ndmin=0, like=None):
    """An array of ``object``, in which traced values may be nested anywhere."""
    if not is_traced(object):
        return np.array(plain(object), dtype, copy=copy, order=order, ndmin=ndmin)
    y = as_operand(object)
    y = y if dtype is None else astype(y, dtype)
    return reshape(y, (1,) * (ndmin - y.ndim) + y.shape) if y.ndim < ndmin else y


def asarray(a, dtype=None, order=None, *, device=None, copy=None, like=None):
    """``a`` as an array, in which traced values may be nested anywhere."""
    if not is_traced(a):
        return np.asarray(plain(a), dtype, order, copy=copy)
    return array(a, dtype)


asanyarray = ascontiguousarray = asfortranarray = asarray


def _fill(name: str, function: Callable) -> Callable:
    @numpy_like(getattr(np, f"{name}_like"),
                doc=f"numpy.{name} with the shape and dtype of ``a``: a constant.")
    def named(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
        a = as_operand(a)
        return function(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)

    return named


zeros_like, ones_like, empty_like = (
    _fill("zeros", np.zeros), _fill("ones", np.ones), _fill("empty", np.zeros)
)


@numpy_like(np.full)
def full(shape, fill_value, dtype=None, order="C", *, device=None, like=None):
    """An array of a shape, filled with ``fill_value`` by broadcasting."""
    y = as_operand(fill_value)
    return broadcast_to(y if dtype is None else astype(y, dtype), shape)


@numpy_like(np.full_like)
def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    """An array with the shape and dtype of ``a``, filled with ``fill_value``."""
    a, y = as_operand(a), as_operand(fill_value)
    y = astype(y, a.dtype if dtype is None else dtype)
    return broadcast_to(y, a.shape if shape is None else shape)


@numpy_like(np.arange)
def arange(start, stop=None, step=1, dtype=None, *, device=None, like=None):
    """Values from ``start`` in steps up to ``stop``, how many of which Python decides."""
    start, stop = (np.zeros((), int), start) if stop is None else (start, stop)
    start, stop, step = as_operand(start), as_operand(stop), as_operand(1 if step is None else step)
    count = max(int(ops.ceil((stop - start) / step)), 0)
    y = start + np.arange(count) * (start + step - start)  # as NumPy rounds
    return y if dtype is None else astype(y, dtype)


def fromiter(iter, dtype, count=-1, *, like=None):
    """An array of the values of an iterable, the first ``count`` of them."""
    values = list(iter if count < 0 else itertools.islice(iter, count))
    if not is_traced(values):
        return np.fromiter(values, dtype, count)
    return astype(as_operand(values), dtype)


@numpy_like(np.linspace)
def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    """``num`` evenly spaced values from ``start`` to ``stop``."""
    num = operator.index(num)
    inexact = common_dtype(start, stop, 1.0)
    start, stop = astype(as_operand(start), inexact), astype(as_operand(stop), inexact)
    gaps = num - 1 if endpoint else num
    ends = np.broadcast_shapes(start.shape, stop.shape)
    counted = np.arange(num, dtype=inexact).reshape((-1,) + (1,) * len(ends))
    y = counted * ((stop - start) / max(gaps, 1)) + start
    if endpoint and num > 1:  # exactly ``stop``, as in NumPy, without rounding
        y = np.concatenate([y[:-1], broadcast_to(stop, ends)[None]])
    if dtype is not None:
        y = astype(ops.floor(y) if np.issubdtype(dtype, np.integer) else y, dtype)
    y = moveaxis(y, 0, axis) if axis else y
    return (y, (stop - start) / gaps if gaps else np.nan) if retstep else y


@numpy_like(np.logspace)
def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """``base`` to the power of evenly spaced values."""
    y = ops.power(_scalar_or_operand(base), linspace(start, stop, num, endpoint, axis=axis))
    return y if dtype is None else astype(y, dtype)


@numpy_like(np.geomspace)
def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """``num`` values from ``start`` to ``stop`` with constant ratios."""
    start, stop = as_operand(start), as_operand(stop)
    if any([np.any(known_value(v) == 0) for v in (start, stop)]):
        raise ValueError("Geometric sequence cannot include zero")
    asked = [] if dtype is None else [np.dtype(dtype)]
    wide = np.result_type(start.dtype, stop.dtype, np.float64, *asked)  # as NumPy
    start, stop = astype(start, wide), astype(stop, wide)
    if wide.kind == "c":
        y = start * ops.exp(linspace(np.zeros(()), ops.log(stop / start), num, endpoint))
    else:
        sign = ops.sign(start)
        ends = [ops.log10(v / sign) for v in (start, stop)]
        y = logspace(*ends, num, endpoint) * sign
    shape = np.broadcast_shapes(start.shape, stop.shape)
    if y.shape[0] > 1:  # its ends are these without rounding
        last = [broadcast_to(stop, shape)[None]] if endpoint else []
        y = np.concatenate([broadcast_to(start, shape)[None], y[1: len(y) - len(last)], *last])
    y = y if dtype is None else astype(y, dtype)
    return moveaxis(y, 0, axis) if axis else y


# NumPy's own: they have no traced operands
_THEIRS = [
    "zeros", "ones", "eye", "identity", "empty", "tri", "indices", "tril_indices",
    "triu_indices", "diag_indices", "ix_", "broadcast_shapes",
    "promote_types", "issubdtype", "isdtype", "min_scalar_type",
    "iterable", "ndindex", "errstate", "dtype", "pi",
    "e", "inf", "nan", "euler_gamma", "newaxis", "s_", "bool", "bool_", "int_",
    "uint", "int8", "int16", "int32", "int64", "intp", "intc", "uint8", "uint16", "uint32",
    "uint64", "uintp", "float16", "float32", "float64", "half", "single", "double", "longdouble",
    "complex64", "complex128", "csingle", "cdouble", "number", "integer", "signedinteger",
    "unsignedinteger", "inexact", "floating", "complexfloating", "generic", "printoptions",
    "set_printoptions", "get_printoptions", "array_repr", "array_str", "array2string",
]
globals().update({name: getattr(np, name) for name in _THEIRS})

METHODS = {
    "real": property(real),
    "imag": property(imag),
    "conj": lambda self: ops.conjugate(self) if self.dtype.kind == "c" else self,
    "conjugate": lambda self: ops.conjugate(self) if self.dtype.kind == "c" else self,
    "round": round,
    "clip": lambda self, min=None, max=None, out=None, **options: clip(
        self, min, max, out, **options
    ),
}

_OURS = [
    "allclose", "angle", "arange", "around", "array", "array_equal", "array_equiv", "asanyarray",
    "asarray", "ascontiguousarray", "asfortranarray", "can_cast", "clip", "common_type",
    "empty_like", "fix", "fromiter", "full", "full_like", "geomspace", "imag", "isclose",
    "iscomplex", "iscomplexobj", "isneginf", "isposinf", "isreal", "isrealobj", "linspace",
    "logspace", "nan_to_num", "ndim", "ones_like", "real", "real_if_close", "result_type", "round",
    "shape", "sinc", "size", "zeros_like",
]

ALSO = (*_UFUNC_NAMES, *_THEIRS, *_OURS)
