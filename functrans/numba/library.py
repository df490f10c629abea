"""Products and linear algebra in kernels, and the table of all of NumPy's functions there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import overload, overload_method

from functrans.numba import joining  # noqa: F401  # enter their functions
from functrans.numba.arrays import ActiveArray, fresh, values, write
from functrans.numba.complexes import Pair, part_of
from functrans.numba.convert import Conversion
from functrans.numba.expressions import TapeCompiler
from functrans.numba.functions import FUNCTIONS, METHODS, chosen_for, new, stands_for
from functrans.numba.numbers import CALLED_BY_KERNELS, Kept, Taped
from functrans.numba.tape import InputArray
from functrans.numba.updates import KernelCompiler

# ---- NumPy's functions in kernels that multiply arrays, and those of lines through points


# ---- products


@chosen_for(np.cross)
def cross(a, b):
    def one(a, b):
        if len(a) != 3 or len(b) != 3:
            raise ValueError("cross: in a kernel that is differentiated, vectors have 3 entries")
        out = new((3,))
        for k in range(3):
            i, j = (k + 1) % 3, (k + 2) % 3
            out[k] = a[i] * b[j] - a[j] * b[i]
        return out

    def rows(a, b):
        if len(a) != len(b):
            raise ValueError("cross: the arrays differ in length")
        out = new(a.shape)
        for i in range(len(a)):
            out[i] = np.cross(a[i], b[i])
        return out

    return {(1, 1): one, (2, 2): rows}.get((a.ndim, b.ndim))


@stands_for(np.vdot)
def vdot(a, b):
    if a.size != b.size:
        raise ValueError("vdot: the arrays differ in size")
    y = 0.0
    for k in range(a.size):
        y += np.conj(a.flat[k]) * b.flat[k]
    return y


@chosen_for(np.kron)
def kron(a, b):
    def vectors(a, b):
        n, m = len(a), len(b)
        out = new((n * m,))
        for i in range(n):
            out[i * m : (i + 1) * m] = a[i] * b
        return out

    def of_matrices(a, b):
        (n, m), (p, q) = a.shape, b.shape
        out = new((n * p, m * q))
        for i in range(n):
            for j in range(m):
                out[i * p : (i + 1) * p, j * q : (j + 1) * q] = a[i, j] * b
        return out

    return {(1, 1): vectors, (2, 2): of_matrices}.get((a.ndim, b.ndim))


@njit
def convolved(a, v, start, stop):
    """The entries of the full convolution from ``start`` on."""
    out = new((stop - start,))
    for k in range(start, stop):
        y = 0.0
        for i in range(max(0, k - len(v) + 1), min(len(a), k + 1)):
            y += a[i] * v[k - i]
        out[k - start] = y
    return out


@stands_for(np.convolve)
def convolve(a, v, mode="full"):
    n, m = len(a), len(v)
    if n == 0 or m == 0:
        raise ValueError("convolve: an argument is empty")
    if mode == "full":
        return convolved(a, v, 0, n + m - 1)
    if mode == "same":
        start = (min(n, m) - 1) // 2
        return convolved(a, v, start, start + max(n, m))
    if mode == "valid":
        return convolved(a, v, min(n, m) - 1, max(n, m))
    raise ValueError("convolve: mode must be 'full', 'same' or 'valid'")


@stands_for(np.correlate)
def correlate(a, v, mode: Any = "valid"):
    if mode == "same" and 0 < len(a) < len(v):  # as of both exchanged, in reverse
        start = len(a) // 2
        return convolved(a, np.conj(v[::-1]), start, start + len(v))
    return np.convolve(a, np.conj(v[::-1]), mode)


def trapezoid(y, x=None, dx=1.0):
    if x is not None and len(x) != len(y):
        raise ValueError("trapezoid: y and x must be of one length")
    s = 0.0
    for k in range(1, len(y)):
        width = dx if x is None else x[k] - x[k - 1]
        s += 0.5 * width * (y[k] + y[k - 1])
    return s


stands_for(*[getattr(np, name) for name in ("trapz", "trapezoid") if hasattr(np, name)])(trapezoid)


@njit
def on_line(x, xp, fp):
    """A line through points at ``x``: the segment to its right, at the last point to its left."""
    n = len(xp)
    if x < xp[0]:
        return fp[0]
    if x > xp[n - 1] or n == 1:
        return fp[n - 1]
    k = min(np.searchsorted(values(xp), values(x), "right"), n - 1)
    if xp[k] == xp[k - 1]:
        return fp[k]  # a jump at the end
    slope = (fp[k] - fp[k - 1]) / (xp[k] - xp[k - 1])
    start = k if x == xp[n - 1] else k - 1  # with the value of the last point itself
    if x == xp[start] and np.isinf(slope):
        return fp[start]
    return fp[start] + (x - xp[start]) * slope


@chosen_for(np.interp)
def interp(x, xp, fp):
    def one(x, xp, fp):
        if len(xp) != len(fp) or len(xp) == 0:
            raise ValueError("interp: fp and xp must be of one length, and not empty")
        return x if np.isnan(x) else on_line(x, xp, fp)

    def several(x, xp, fp):
        out = new(x.shape)
        for i in np.ndindex(x.shape):
            out[i] = np.interp(x[i], xp, fp)
        return out

    return several if isinstance(x, types.Array) else one


@stands_for(np.linspace)
def linspace(start, stop, num=50):
    out = new((num,))
    for k in range(num):
        out[k] = stop if k == num - 1 > 0 else start + k * ((stop - start) / max(num - 1, 1))
    return out


# ---- NumPy's linear algebra in kernels, as kernels: elimination, by the size of values


@njit
def require_square(a):
    if a.shape[0] != a.shape[1]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square.")


@njit
def require_finite(a):
    for v in a.flat:
        if not np.isfinite(v):
            raise np.linalg.LinAlgError("Array must not contain infs or NaNs.")


@njit
def copied(a):
    out = new(a.shape)
    write(out, a)
    return out


@njit
def swap(a, i, j):
    """Exchange rows."""
    if i != j:
        for k in range(a.shape[1]):
            a[i, k], a[j, k] = a[j, k], a[i, k]


@njit
def subtract(a, i, j, factor, start):
    """Subtract a multiple of row j from row i, from a column on."""
    for k in range(start, a.shape[1]):
        a[i, k] -= factor * a[j, k]


@njit
def greatest(a, start, stop):
    """Where the greatest entry is, in the columns given and as many rows from ``start`` on."""
    p, q = start, start
    for i in range(start, a.shape[0]):
        for j in range(start, stop):
            if abs(a[i, j]) > abs(a[p, q]):
                p, q = i, j
    return p, q


@njit
def solved(a, b):
    """The solution for several right hand sides, the columns of ``b``, which is written into."""
    require_finite(a)
    require_finite(b)
    n, m = a.shape[0], copied(a)
    for k in range(n):
        p, _ = greatest(m, k, k + 1)
        if m[p, k] == 0:
            raise np.linalg.LinAlgError("Matrix is singular to machine precision.")
        swap(m, k, p)
        swap(b, k, p)
        for i in range(k + 1, n):
            factor = m[i, k] / m[k, k]
            subtract(m, i, k, factor, k + 1)
            subtract(b, i, k, factor, 0)
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            subtract(b, i, k, m[i, k], 0)
        for j in range(b.shape[1]):
            b[i, j] = b[i, j] / m[i, i]
    return b


@chosen_for(np.linalg.solve)
def solve(a, b):
    def several(a, b):
        require_square(a)
        if a.shape[0] != b.shape[0]:
            raise np.linalg.LinAlgError("Incompatible sizes, system cannot be solved.")
        return solved(a, copied(b))

    def one(a, b):
        return np.linalg.solve(a, np.expand_dims(b, 1))[:, 0].copy()

    return one if b.ndim == 1 else several


@stands_for(np.linalg.inv)
def inv(a):
    require_square(a)
    return solved(a, copied(np.eye(a.shape[0])))


@njit
def eliminated(a):
    """The pivots of elimination with rows and columns exchanged, and the sign of the exchanges.

    It stops where nothing but zeros is left; how many pivots there are is returned too.
    """
    require_square(a)
    require_finite(a)
    n, m, sign = a.shape[0], copied(a), 1.0
    for k in range(n):
        p, q = greatest(m, k, n)
        if m[p, q] == 0:
            return m, sign, k
        if (p != k) != (q != k):
            sign = -sign
        swap(m, k, p)
        swap(m.T, k, q)
        for i in range(k + 1, n):
            subtract(m, i, k, m[i, k] / m[k, k], k + 1)
    return m, sign, n


@njit
def without_division(a):
    """A determinant by Bird's algorithm, whose derivatives are right where elimination ends."""
    n, f = a.shape[0], copied(a)
    for _ in range(n - 1):
        below = 0.0
        for i in range(n - 1, -1, -1):
            diagonal = f[i, i]
            for j in range(i):
                f[i, j] = 0.0
            f[i, i] = -below
            below += diagonal
        f = f @ a
    return f[0, 0] if n % 2 == 1 else -f[0, 0]


@stands_for(np.linalg.det)
def det(a):
    m, sign, rank = eliminated(a)
    y = sign * 1.0
    for k in range(rank):
        y *= m[k, k]
    if rank < a.shape[0]:
        y *= without_division(m[rank:, rank:])
    return y


@stands_for(np.linalg.slogdet)
def slogdet(a):
    m, sign, rank = eliminated(a)
    y = 0.0
    if rank < a.shape[0]:  # of 0, whose slope is infinite
        y += np.log(without_division(m[rank:, rank:]))
        sign = 0.0
    for k in range(rank):
        if m[k, k] < 0:
            sign = -sign
        y += np.log(abs(m[k, k]))
    return sign, y


@stands_for(np.linalg.cholesky)
def cholesky(a):
    require_square(a)
    n, out = a.shape[0], new(a.shape)
    for j in range(n):
        for i in range(j, n):
            s = a[i, j] + 0.0
            for k in range(j):
                s -= out[i, k] * np.conj(out[j, k])
            if i > j:
                out[i, j] = s / out[j, j]
            elif np.real(s) > 0:
                out[i, i] = np.sqrt(s)
            else:
                raise np.linalg.LinAlgError("Matrix is not positive definite.")
    return out


@njit
def length(a):
    y = 0.0
    for v in a.flat:
        y = np.hypot(y, np.abs(v))
    return y


def norm_of_vector(x, ord: Any = None):
    if ord == np.inf:
        return np.max(np.abs(x))
    if ord == -np.inf:
        return np.min(np.abs(x))
    if ord == 2:
        return length(x)
    y = 0.0
    for v in x:
        if ord == 0:
            y += 1.0 if v != 0 else 0.0
        else:
            y += np.abs(v) ** ord
    return y if ord == 0 or ord == 1 else y ** (1 / ord)


def norm_of_matrix(x, ord: Any = None):
    if abs(ord) == np.inf:
        sums = np.sum(np.abs(x), 1)
    elif abs(ord) == 1:
        sums = np.sum(np.abs(x), 0)
    else:
        raise ValueError("norm: in a kernel that is differentiated, ord of a matrix is 1 or inf")
    return np.max(sums) if ord > 0 else np.min(sums)


@chosen_for(np.linalg.norm)
def norm(x, ord=None):
    if isinstance(ord, types.Number):
        return norm_of_vector if x.ndim == 1 else norm_of_matrix
    return (lambda x, ord=None: length(x)) if ord is None else None


@stands_for(np.linalg.matrix_power)
def matrix_power(a, n):
    require_square(a)
    y, square = copied(np.eye(a.shape[0])), copied(a)
    m = abs(n)
    while m > 0:
        if m & 1:
            y = y @ square
        m >>= 1
        if m > 0:
            square = square @ square
    return np.linalg.inv(y) if n < 0 else y


# ---- The kernels that stand for NumPy's functions, as numba finds them for active numbers


class FunctionCompiler(TapeCompiler):
    """For whatever numbers the operands have."""

    def define_pipelines(self) -> list:
        on_tape = isinstance(_element(_numbers(self.state.args)), Taped)
        return (TapeCompiler if on_tape else KernelCompiler).define_pipelines(self)


def _numbers(kinds: Any) -> list[Any]:
    """The types of the numbers in operands."""
    found = []
    for k in kinds:
        if isinstance(k, types.BaseTuple):
            found += _numbers(k)
        elif isinstance(k, types.Array | types.List):
            found += _numbers([k.dtype])
        else:
            found.append(k)
    return found


def _element(numbers: list[Any]) -> Kept | None:
    part = part_of(*[k for k in numbers if isinstance(k, Kept | types.Number | types.Boolean)])
    of_complex = any(isinstance(k, Pair | types.Complex) for k in numbers)
    return Pair(part) if part is not None and of_complex else part


@functools.cache
def _conversion(element: Kept) -> Conversion:
    part: Any = element.part if isinstance(element, Pair) else element
    conversion = Conversion(part, CALLED_BY_KERNELS)
    conversion.creators = conversion.creators | {new: fresh(element)}
    return conversion


def _typer(signed: Callable, choose: Callable) -> Callable:
    signature = inspect.signature(signed)

    def typer(*args: Any, **kwargs: Any) -> Callable | None:
        bound = signature.bind(*args, **kwargs)
        kinds = list(bound.arguments.values())
        element = _element(_numbers(kinds))
        kernel = None if element is None else choose(*kinds)
        return None if kernel is None else _conversion(element).exchanged(kernel)

    typer.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    typer.__name__ = typer.__qualname__ = signed.__name__  # what errors say
    return typer


def _enter() -> None:
    """Before numba's own, which may take such arrays for what they are not."""
    options: Any = {**CALLED_BY_KERNELS, "pipeline_class": FunctionCompiler}
    for f, (signed, choose) in FUNCTIONS.items():
        overload(f, jit_options=options, target="cpu", prefer_literal=True)(_typer(signed, choose))
    for name, (signed, choose) in METHODS.items():
        for kind in (ActiveArray, InputArray):
            overload_method(kind, name)(_typer(signed, choose))


_enter()
