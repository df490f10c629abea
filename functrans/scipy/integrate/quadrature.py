r"""Integrals of functions, differentiable in limits and parameters, and of samples.

SciPy finds the value and the pieces on which it converged. Derivatives are those of Gauss's rule
of 21 points on these pieces, which move along with the limits, and which are halved until the
derivative has converged too: it may be sharp where the value is not, as that of ``a * f(x)`` at 0.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import integrate
from scipy.special import roots_legendre

from functrans._core.bind import AnyArray, Tracer, known_value
from functrans._ops.calls import stop
from functrans._ops.elementwise import cos, sin
from functrans._ops.structure import move_axis
from functrans._transforms.forward.closures import in_closures, is_derived
from functrans.errors import SolverError, UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Numbers, TracedResult, as_args, plain_only
from functrans.scipy.implicit import concrete, orders_of
from functrans.scipy.kept import is_kept, once
from functrans.scipy.programs import in_programs, written_into
from functrans.scipy.public import counterpart, is_traced, refused

si: Any = integrate  # its types say less than its functions take
WAVES = {"cos": cos, "sin": sin}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(21)
# from values at the nodes to the coefficients of Legendre's polynomials
SERIES = (np.polynomial.legendre.legvander(NODES, 20) * WEIGHTS[:, None]).T
SERIES *= np.arange(0.5, 21)[:, None]


@in_programs
def quad(func, a, b, args=(), full_output=0, epsabs=1.49e-8, epsrel=1.49e-8, limit=50, points=None,
         weight=None, **options):
    """The integral of ``func(x, *args)`` from ``a`` to ``b``, and an estimate of its error.

    Limits may be infinite; ``weight`` is "cos" or "sin" of ``wvar * x`` between finite ones. Where
    the integrand jumps at a place that moves, give that place in ``points``. Raises
    SolverError where Gauss's rule on SciPy's pieces does not come to SciPy's value, as beside a
    singularity, and with its message where SciPy warns.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda k: quad(lambda x: np.exp(-k * x), 0, np.inf)[0])(2.0)
    Array(-0.25)
    """
    args = as_args(args)
    if not (is_traced((a, b, args, points, options)) or is_kept()):
        try:
            return si.quad(plain_only(func, None if args else 1), a, b, args, full_output, epsabs,
                           epsrel, limit, points, weight, **options)
        except TracedResult:  # by its closure
            pass
    f = Numbers(func)
    ends = concrete((a, b))
    inputs = concrete((args, points))
    frequency = options.get("wvar")
    options["wvar"] = concrete(frequency)

    def run(full: Any) -> Any:
        return si.quad(f, *ends, inputs[0], full, epsabs, epsrel, limit, inputs[1], weight,
                       **options)

    value, error, info, *message = once("solve", lambda: run(1))
    if not f.closes_over((a, b, args, frequency, points)):
        if message:
            return run(full_output)  # which warns as SciPy does
        return (value, error, info) if full_output else (value, error)
    wave = WAVES.get(weight or "") if np.isfinite(ends).all() else None
    others = [k for k, v in options.items() if v is not None and v is not False and k != "wvar"]
    if (weight is not None and wave is None) or others:
        raise UnsupportedError(
            f"{user_line()}: quad got {others[0] if others else 'weight'}= beside a traced value. "
            "Write the weight into the function; take real and imaginary parts apart."
        )
    if message:
        raise SolverError(
            f"{user_line()}: quad has no derivative, for it did not converge: {message[0]}"
        )
    pieces = info.get("last", 0)
    starts, stops = info["alist"][:pieces], info["blist"][:pieces]
    if wave is not None and not pieces:  # QUADPACK's word for one
        starts, stops = [min(ends)], [max(ends)]
    tolerance = Tolerance(epsabs, epsrel, limit)
    if wave is None:
        g = lambda x: func(x, *args)  # noqa: E731  # of two
    else:
        starts, stops = _shorter(starts, stops, 4 * math.pi / max(abs(options["wvar"]), 1e-300))
        g = lambda x: func(x, *args) * wave(frequency * x)  # noqa: E731
    pieces = sorted(zip(starts, stops, strict=True))
    breaks = _breaks("quad", ends, (a, b), points if wave is None else None, pieces)
    y, total = value, _by_gauss(g, a, b, pieces, breaks)
    if isinstance(total, Tracer):
        _require_equal("quad", concrete(total), value, max(error, epsabs))
        total = _converge("quad", total, g, a, b, pieces, breaks, tolerance)
        y = value + (total - stop(total))
    return (y, error, info) if full_output else (y, error)


@in_programs
def dblquad(func, a, b, gfun, hfun, args=(), epsabs=1.49e-8, epsrel=1.49e-8):
    """The integral of ``func(y, x, *args)``, x from ``a`` to ``b``, y from ``gfun(x)`` to
    ``hfun(x)``; differentiated in all limits.

    >>> import functrans as ft
    >>> ft.grad(lambda k: dblquad(lambda y, x: k * x * y, 0, k, 0, lambda x: x)[0])(2.0)
    Array(10.)
    """
    options = {"epsabs": epsabs, "epsrel": epsrel}
    ranges = [_limits(gfun, hfun, lambda x: (x,)), (a, b)]
    return inspect.unwrap(nquad)(func, ranges, as_args(args), options)


@in_programs
def tplquad(func, a, b, gfun, hfun, qfun, rfun, args=(), epsabs=1.49e-8, epsrel=1.49e-8):
    """The integral of ``func(z, y, x, *args)``, x from ``a`` to ``b``, y from ``gfun(x)`` to
    ``hfun(x)`` and z from ``qfun(x, y)`` to ``rfun(x, y)``; differentiated in all limits.

    >>> tplquad(lambda z, y, x: 3.0 * x, 0, 1, 0, 1, 0, lambda x, y: 2.0)[0]
    3.0
    """
    options = {"epsabs": epsabs, "epsrel": epsrel}
    ranges = [_limits(qfun, rfun, lambda y, x: (x, y)), _limits(gfun, hfun, lambda x: (x,)), (a, b)]
    return inspect.unwrap(nquad)(func, ranges, as_args(args), options)


def _limits(low: Any, high: Any, order: Callable) -> Callable:
    """Limits as ``nquad`` takes them: a function of the variables outside, the innermost first."""
    count = len(inspect.signature(order).parameters)

    def limits(*outside: Any) -> list:
        xs = order(*outside[:count])
        return [end(*xs) if callable(end) else end for end in (low, high)]

    return limits


@in_programs
def nquad(func, ranges, args=None, opts=None, full_output=False):
    """The integral over several variables, the first innermost, whose ranges may depend on those
    outside; differentiated in all limits and parameters.

    >>> import functrans as ft
    >>> ft.grad(lambda k: nquad(lambda x, y: k * x * y, [lambda y: (0, y), (0, k)])[0])(2.0)
    Array(10.)
    """
    if full_output:
        if is_traced((ranges, args)):
            raise refused("nquad", "full_output", full_output, "leave it out")
        return si.nquad(func, ranges, args, opts, full_output)
    if not is_traced((ranges, args, opts)):
        with contextlib.suppress(TracedResult):
            given = [*map(plain_only, opts)] if isinstance(opts, list | tuple) else plain_only(opts)
            return si.nquad(plain_only(func), [*map(plain_only, ranges)], args, given)
    args = () if args is None else as_args(args)
    options = opts if isinstance(opts, list | tuple) else [opts or {}] * len(ranges)
    quad_alone = inspect.unwrap(quad)  # in a program the whole is one step
    errors = []

    # what is traced goes by arguments, so that SciPy's own evaluations are of numbers
    def over(level: int, outside: tuple, args: tuple) -> Any:
        def at(x: Any) -> Any:
            return x(*outside, *args) if callable(x) else x

        low, high = at(ranges[level])
        given: dict[str, Any] = dict(at(options[level]))
        if given.get("points") is not None:  # of which SciPy takes those inside
            ends = sorted(concrete((low, high)))
            given["points"] = [p for p in given["points"] if ends[0] <= concrete(p) <= ends[1]]

        def inside(x: Any, outside: tuple, args: tuple) -> Any:
            outside = (x, *outside)
            return over(level - 1, outside, args) if level else func(*outside, *args)

        value, error = quad_alone(inside, low, high, (outside, args), **given)
        errors.append(error)
        return value

    value = over(len(ranges) - 1, (), args)
    return value, max(errors)


def _shorter(starts: Sequence, stops: Sequence, longest: float) -> tuple[list, list]:
    """The same pieces, cut until none is longer than ``longest``."""
    edges = [np.linspace(low, high, int(np.ceil(abs(high - low) / longest)) + 1)
             for low, high in zip(starts, stops, strict=True)]
    return [x for e in edges for x in e[:-1]], [x for e in edges for x in e[1:]]


class Tolerance(NamedTuple):
    """When an integral has converged, as SciPy takes it, and in how many pieces it may be."""

    absolute: float
    relative: float
    pieces: int


def _breaks(who: str, ends: Sequence, limits: Sequence, points: Any, pieces: list) -> list:
    """Where pieces end that do not move along with the limits: their numbers, rising, and where
    they are.

    Those of ``points`` move as they do. Without, they are the ends of the first and the last piece
    where a limit moves: jumps of the integrand in between stay where they are.
    """
    low, high = sorted(map(float, ends))
    if not np.isfinite([low, high]).all() or low == high:
        return []
    if points is None:
        inner = [pieces[0][1], pieces[-1][0]] if is_traced(tuple(limits)) else []
        return [(p, p) for p in sorted(set(map(float, inner))) if low < p < high]
    listed = list(points)
    numbers = [float(p) for p in concrete(listed)]
    fixed = {low, high}
    found: dict[float, Any] = {}
    for number, point in sorted(zip(numbers, listed, strict=True), key=lambda pair: pair[0]):
        if is_traced(point) and (number in fixed or numbers.count(number) > 1):
            raise SolverError(
                f"{user_line()}: {who} has no derivative here: a traced entry of points= is "
                f"{number}, where another point or a limit is too, and a change may put them in "
                "either order."
            )
        if low < number < high:
            found[number] = point
    return list(found.items())


def _converge(who: str, total: Any, f: Callable, a: Any, b: Any, pieces: list, breaks: list,
               tolerance: Tolerance) -> AnyArray:
    """``total``, the integral over pieces, or that over smaller ones if its derivatives need it."""
    low, high = sorted(concrete((a, b)))
    if low == high or is_derived():  # within another integral whose derivative is looked at
        return total
    ends = (a, b) if concrete(a) == low else (b, a)
    found = pieces
    for order in range(1, orders_of(total) + 1):
        at = lambda t: _transform(f, *ends, low, high, t, breaks)  # noqa: E731  # of this order
        with in_closures(at, total, order) as slope:
            found = _halve(who, slope, found, tolerance)
    return total if len(found) == len(pieces) else _by_gauss(f, a, b, found, breaks)


def _halve(who: str, slope: Callable, pieces: list, tolerance: Tolerance) -> list:
    """Pieces on which Gauss's rule for ``slope`` has converged."""
    done = {piece: _estimate(slope, *piece) for piece in pieces}
    most = len(done) + tolerance.pieces
    while True:
        total = np.sum([value for value, _ in done.values()], axis=0)
        allowed = max(tolerance.absolute, tolerance.relative * np.max(np.abs(total), initial=0.0))
        if sum([error for _, error in done.values()]) <= allowed:
            return sorted(done)
        start, end = worst = max(done, key=lambda piece: done[piece][1])
        middle = (start + end) / 2
        if len(done) == most or not start < middle < end:
            raise SolverError(
                f"{user_line()}: {who} has no derivative here: that of the integral did not "
                f"converge in {len(done)} pieces, as beside a singularity of its integrand. "
                "Change variables so that this is smooth, split the range with points=, or pass a "
                "larger limit= or tolerance."
            )
        del done[worst]
        for piece in ((start, middle), (middle, end)):
            done[piece] = _estimate(slope, *piece)


def _estimate(f: Callable, start: float, end: float) -> tuple[np.ndarray, float]:
    """The integral over a piece, and its error: by how far its series has come down in 20 terms,
    of which Gauss's rule integrates 41.
    """
    half = (end - start) / 2
    ys = np.stack([f(start + half * (1 + node)) for node in NODES])
    series = np.abs(half * (SERIES @ ys.reshape(len(ys), -1)))
    largest, last = np.max(series, axis=0), np.max(series[-4:], axis=0)
    error = 2 * largest * (last / np.where(largest > 0, largest, 1)) ** 1.5
    return half * (WEIGHTS @ ys.reshape(len(ys), -1)), float(np.max(error, initial=0.0))


def _by_gauss(f: Callable, a: Any, b: Any, pieces: Sequence[tuple[float, float]],
              breaks: list) -> AnyArray:
    """The integral over pieces that QUADPACK has reported: of t, where a limit is infinite."""
    low, high = concrete((a, b))
    if low == high:  # one piece, of length 0
        return (b - a) / 2 * sum([w * f(a + (b - a) * (1 + node) / 2)
                                  for node, w in zip(NODES, WEIGHTS, strict=True)])
    sign = 1.0
    if low > high:
        a, b, low, high, sign = b, a, high, low, -1.0
    total: Any = 0.0
    for start, end in pieces:
        for node, w in zip(NODES, WEIGHTS * (end - start) / 2, strict=True):
            t = start + (end - start) * (1 + node) / 2
            total = total + w * _transform(f, a, b, low, high, t, breaks)
    return sign * total


def _transform(f: Callable, a: Any, b: Any, low: float, high: float, t: float,
                 breaks: list) -> AnyArray:
    """The integrand of t: x moves with the breaks and finite limits around it, and is a + (1 - t)
    / t up to infinity.
    """
    if np.isfinite(low) and np.isfinite(high):
        for number, at in breaks:
            if t < number:
                high, b = number, at
                break
            low, a = number, at
        share = (t - low) / (high - low)
        return f(a + share * (b - a)) * ((b - a) / (high - low))
    x = (1 - t) / t
    if np.isfinite(low):
        return f(a + x) / t**2
    if np.isfinite(high):
        return f(b - x) / t**2
    return (f(x) + f(-x)) / t**2


def _require_equal(who: str, total: Any, value: Any, error: float) -> None:
    off = np.max(np.abs(total - value), initial=0.0)
    if not off <= 10 * error + 1e-8 * np.max(np.abs(value), initial=0.0):
        raise SolverError(
            f"{user_line()}: {who} has no derivative here: Gauss's rule on its pieces is {off:.1g} "
            "away from the value, as beside a singularity. Change variables so that the integrand "
            "is smooth, or split the range with points=."
        )


@in_programs
def quad_vec(f, a, b, epsabs=1e-200, epsrel=1e-8, norm="2", *rest: Any, full_output=False, args=(),
             **options):
    """The integral of a function of one number whose values are arrays, over a finite range.

    >>> import functrans as ft, numpy as np
    >>> k = np.array([1.0, 2.0])
    >>> ft.jacobian(lambda b: quad_vec(lambda x: k * x, 0.0, b)[0])(3.0).round(6)
    array([3., 6.])
    """
    args = as_args(args)
    plain = Numbers(f)
    ends, numbers = concrete(((a, b), args))
    points = options.get("points")
    value, error, info = once("solve", lambda: si.quad_vec(
        plain, *ends, epsabs, epsrel, norm, *rest, full_output=True, args=numbers,
        **concrete(options)))
    if plain.closes_over((a, b, args, points)):
        if not np.all(np.isfinite(ends)):
            raise UnsupportedError(
                f"{user_line()}: quad_vec got an infinite limit beside a traced value. Change "
                "variables to a finite range, or take quad for each entry."
            )
        low, high = np.transpose(info.intervals)
        # in order, as they are of rising limits
        low, high = np.minimum(low, high), np.maximum(low, high)
        pieces = sorted(zip(low.tolist(), high.tolist(), strict=True))
        breaks = _breaks("quad_vec", ends, (a, b), points, pieces)
        tolerance = Tolerance(epsabs, epsrel, 10_000)  # SciPy's number of intervals
        g = lambda x: as_operand(f(x, *args))  # noqa: E731  # of the integrands
        total = _by_gauss(g, a, b, pieces, breaks)
        if isinstance(total, Tracer):
            _require_equal("quad_vec", concrete(total), value, error)
            total = _converge("quad_vec", total, g, a, b, pieces, breaks, tolerance)
            value = value + (total - stop(total))
    return (value, error, info) if full_output else (value, error)


@written_into
def fixed_quad(func, a, b, args=(), n=5):
    """The integral by Gauss's rule of ``n`` points, of a function of arrays.

    >>> import functrans as ft
    >>> ft.grad(lambda b: fixed_quad(lambda x: x**3, 0.0, b)[0])(2.0)
    Array(8.)
    """
    for end in (a, b):
        if not is_traced(end) and np.isinf(end):
            raise ValueError("Gaussian quadrature is only available for finite limits.")
    nodes, weights = roots_legendre(n)
    y = func((b - a) * (nodes + 1) / 2 + a, *as_args(args))
    return (b - a) / 2 * np.sum(weights * y, axis=-1), None


# ---- samples


def _samples(y: Any, x: Any, dx: Any, axis: int) -> tuple[Any, Any]:
    """``y`` with its axis last, and the distances of its samples."""
    y = as_operand(y)
    axis = normalize_axis_index(axis, y.ndim)
    if x is None:
        return move_axis(y, axis, -1), dx * np.ones(max(y.shape[axis] - 1, 0))
    x = as_operand(x)
    return move_axis(y, axis, -1), np.diff(move_axis(x, axis, -1) if x.ndim > 1 else x)


@counterpart(si.trapezoid)
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral of samples by the trapezoidal rule."""
    y, d = _samples(y, x, dx, axis)
    return np.sum(d * (y[..., 1:] + y[..., :-1]), axis=-1) / 2


@counterpart(si.cumulative_trapezoid)
def cumulative_trapezoid(y, x=None, dx=1.0, axis=-1, initial=None):
    """Integrals of samples up to each of them, by the trapezoidal rule."""
    place = normalize_axis_index(axis, np.ndim(y))
    y, d = _samples(y, x, dx, axis)
    total = np.cumsum(d * (y[..., 1:] + y[..., :-1]) / 2, axis=-1)
    if initial is not None:
        if initial != 0:
            raise ValueError("`initial` must be `None` or `0`.")
        total = np.concatenate([np.zeros((*total.shape[:-1], 1)), total], axis=-1)
    return move_axis(total, -1, place)


@counterpart(si.simpson)
def simpson(y, x=None, *, dx=1.0, axis=-1):
    """The integral of samples by Simpson's rule; of an even number, the last interval is
    Cartwright's.
    """
    y, d = _samples(y, x, dx, axis)
    n = y.shape[-1]
    if n < 3:
        return np.sum(d * (y[..., 1:] + y[..., :-1]), axis=-1) / 2
    m = n - 1 + n % 2  # an odd number of samples
    h, k = d[..., 0 : m - 1 : 2], d[..., 1 : m - 1 : 2]
    total = np.sum((h + k) / 6 * (
        y[..., 0 : m - 1 : 2] * (2 - k / h)
        + y[..., 1 : m - 1 : 2] * ((h + k) ** 2 / (h * k))
        + y[..., 2:m:2] * (2 - h / k)
    ), axis=-1)
    if m == n:
        return total
    h, k = d[..., -2], d[..., -1]
    return (
        total
        + y[..., -1] * (2 * k**2 + 3 * h * k) / (6 * (h + k))
        + y[..., -2] * (k**2 + 3 * h * k) / (6 * h)
        - y[..., -3] * k**3 / (6 * h * (h + k))
    )


@counterpart(si.cumulative_simpson)
def cumulative_simpson(y, *, x=None, dx=1.0, axis=-1, initial=None):
    """Integrals of samples up to each of them, by parabolas through three neighbours.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(lambda x: cumulative_simpson(x**2, dx=1.0))(np.arange(3.0))[:, 1].round(12)
    array([1.33333333, 2.66666667])
    """
    place = normalize_axis_index(axis, np.ndim(y))
    given = [None if v is None else as_operand(v) for v in (x, dx, initial)]
    plain = list(map(known_value, given))
    if all([a is None or b is not None for a, b in zip(given, plain, strict=True)]):
        si.cumulative_simpson(np.zeros(np.shape(y)), x=plain[0], dx=plain[1], axis=axis,
                              initial=plain[2])  # SciPy's checks
    y, d = _samples(y, x, dx, axis)
    n = y.shape[-1]
    parts = d * (y[..., 1:] + y[..., :-1]) / 2 if n < 3 else _under_parabolas(y, d, n)
    total = np.cumsum(parts, axis=-1)
    if initial is not None:
        start = as_operand(initial)
        start = move_axis(start, place, -1) if start.ndim else start
        start = start + np.zeros((*total.shape[:-1], 1))
        total = np.concatenate([start, start + total], axis=-1)
    return move_axis(total, -1, place)


def _under_parabolas(y: Any, d: Any, n: int) -> AnyArray:
    """The integral over each interval: as the first of two if it is even, else as the second."""
    interval = np.arange(n - 1)
    first = (interval % 2 == 0) & (interval < n - 2)
    start = np.where(first, interval, interval - 1)
    before, middle, after = [y[..., start + k] for k in range(3)]
    d = np.broadcast_to(d, (*y.shape[:-1], n - 1))
    near, far = d[..., interval], d[..., np.where(first, interval + 1, interval - 1)]
    end, other = np.where(first, before, after), np.where(first, after, before)
    # of the parabola through three values, from an end to the middle
    bend = ((other - middle) / far - (middle - end) / near) / (near + far)
    return near * (end + middle) / 2 - bend * near**3 / 6
