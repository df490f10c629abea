"""Derivatives from values alone, and the rule of one mode from that of the other."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import finfo, is_inexact
from functrans._transforms.forward.series import total

# ---- The rule of one mode from that of the other, or from Jacobians
#
# Functions here take lists of ndarrays. ``jvp(xs, ts, options)`` and ``vjp(xs, cts, options)`` have
# None where there is no tangent or cotangent. Both are linear over the real numbers: a complex
# entry has two directions, and they are transposes by the real part of ``inner``.


class DerivativeRule(NamedTuple):
    """A derivative: tangents of the outputs from those of the operands, and cotangents back.

    ``differenced``: how many times its numbers went through differences, which lose digits.
    ``rows``: the same of many tangents or cotangents at one point, along axis 0, where there is it.
    """

    jvp: Callable[[Sequence, Sequence, dict], list]
    vjp: Callable[[Sequence, Sequence, dict], list]
    differenced: int = 0
    rows: DerivativeRule | None = None


def rule_of(
    f: Callable,
    *,
    jvp: Callable | None = None,
    vjp: Callable | None = None,
    jacobians: Callable | None = None,
) -> DerivativeRule:
    """The rule of ``f(xs, options)`` from any one of its three forms."""
    if jacobians is not None:
        return DerivativeRule(_contract(jacobians), _contracted_back(jacobians))
    if jvp is not None:
        return DerivativeRule(jvp, by_units(jvp, operands_of))
    assert vjp is not None, "one of the three"
    return DerivativeRule(by_units(vjp, f), vjp)


def by_units(apply: Callable, types: Callable) -> Callable:
    """The rule of the other mode: ``apply`` takes a unit for each entry of ``types(xs)``."""

    def other(xs: Sequence, changes: Sequence, options: dict) -> list:
        like = types(xs, options)
        out: list[Any] = [None] * len(like)
        for i, x in enumerate(like):
            if not is_inexact(x):
                continue

            def along(t: np.ndarray, i: int = i) -> complex:
                units: list[Any] = [None] * len(like)
                units[i] = t
                return inner(changes, apply(xs, units, options))

            out[i] = _entries(x, along)
        return out

    return other


def operands_of(xs: Sequence, options: dict) -> Sequence:
    return xs


def _entries(x: np.ndarray, along: Callable) -> np.ndarray:
    """The array like ``x`` of which ``along`` gives, as real parts, the products with units."""
    flat = np.zeros(x.size, x.dtype)
    for k in range(x.size):
        e = unit(x, k)
        flat[k] = np.real(along(e))
        if x.dtype.kind == "c":
            flat[k] -= 1j * np.real(along(x.dtype.type(1j) * e))  # Re(c * i) is -Im(c)
    return flat.reshape(x.shape)


def unit(x: np.ndarray, k: int) -> np.ndarray:
    """One at entry ``k``, counted in order, and zero elsewhere."""
    e = np.zeros(x.size, x.dtype)
    e[k] = 1
    return e.reshape(x.shape)


def inner(a: Iterable, b: Iterable) -> complex:
    """The sum of products of entries, without conjugation."""
    return sum(
        _sum_of_products(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None
    )


def _sum_of_products(x: np.ndarray, y: np.ndarray) -> Any:
    total = np.sum(x * y)
    if np.isfinite(total):
        return total
    return np.sum(np.where((x == 0) | (y == 0), 0, x * y))  # 0 * nan: what is not wanted


def _contract(jacobians: Callable) -> Callable:
    def jvp(xs: Sequence, ts: Sequence, options: dict) -> list:
        return [
            total(
                np.tensordot(j, t, t.ndim)
                for j, t in zip(row, ts, strict=True)
                if j is not None and t is not None
            )
            for row in jacobians(xs, options)
        ]

    return jvp


def _contracted_back(jacobians: Callable) -> Callable:
    def vjp(xs: Sequence, cts: Sequence, options: dict) -> list:
        rows = jacobians(xs, options)
        return [
            total(
                np.tensordot(ct, row[i], ct.ndim)
                for ct, row in zip(cts, rows, strict=True)
                if ct is not None and row[i] is not None
            )
            for i in range(len(xs))
        ]

    return vjp


# ---- Derivatives from values alone, by differences whose step is found, and the complex step
#
# Along a tangent ``f`` is a function of one number. With two steps central differences are
# extrapolated once: truncation is then of order h^4 and rounding of order eps/h, so that h^5 = eps
# is a good step where ``f`` changes with ``x`` itself. That is tried first, and believed in an
# entry where the two differences agree to the digits promised, eps^0.4 of the slope or of the
# change of ``f`` over the step. For the other entries the step shrinks until they do, and then
# grows. What never agrees is NaN.
#
# A function that takes complex numbers gives its slope to the last digit as the imaginary part of
# ``f(x + ih)``, if it is analytic. That is taken where differences confirm it.

# The second of two steps, as a part of the first: no power of two, in which what has few digits
# may have the same slope as in the first.
NEAR = 0.375
# Up to how many times the size of x, or 1, a step grows: further where the function is lost in
# rounding over small ones, but not where it is rough.
WIDE, WIDEST = 0.25, 64
# How far, of the slope, differences with the two may lie apart to be extrapolated.
COARSE = 0.02
# A function is constant that stays the same over half of x, or over this.
FLAT = 2.0**-13
# Steps in imaginary directions, as a part of the size of x: their squares are lost.
IMAGINARY = 2.0**-66


def differences(f: Callable, *, order: int = 1, loose: bool = False) -> DerivativeRule:
    """The rule of ``f(xs, options)`` by differences.

    ``order``: 1 for values to the last digit, 2 for those that are differences themselves, and so
    on. ``loose`` promises fewer digits: for a check. The complex step is for values.
    """
    complexes = Complexes(f) if order == 1 else None

    def jvp(xs: Sequence, ts: Sequence, options: dict) -> list:
        return along(f(xs, options), xs, ts, options)

    def vjp(xs: Sequence, cts: Sequence, options: dict) -> list:
        rule = by_units(functools.partial(along, f(xs, options)), operands_of)
        return rule(xs, cts, options)

    def along(middle: Sequence, xs: Sequence, ts: Sequence, options: dict) -> list:
        line = Line(f, middle, xs, ts, options)
        if not line.length or not line.center.size:
            return [np.zeros_like(y) if is_inexact(y) else None for y in line.middle]
        search = Search(line, order, loose)
        search.run()
        if complexes is not None and np.isfinite(line.length):
            search.confirm(complexes.slopes(line))
        return search.results()

    return DerivativeRule(jvp, vjp, order)


class Line:
    """A function along tangents: arrays of its inexact outputs, flat and joined."""

    def __init__(
        self, f: Callable, middle: Sequence, xs: Sequence, ts: Sequence, options: dict
    ):
        self.f, self.middle, self.xs, self.options = f, middle, xs, options
        self.ts = [t if t is not None and t.size else None for t in ts]
        moving = [(x, t) for x, t in zip(xs, self.ts, strict=True) if t is not None]
        self.length = max((float(np.max(np.abs(t))) for _, t in moving), default=0.0)
        self.eps = max((float(finfo(x.dtype).eps) for x, _ in moving), default=0.0)
        # by the entries that change: one large entry elsewhere sets no scale for them
        self.scale = max((_largest(x[t != 0]) for x, t in moving), default=0.0)
        self.center = self.joined(self.middle)

    def joined(self, ys: Sequence) -> np.ndarray:
        flat = [np.ravel(y) for y, like in zip(ys, self.middle, strict=True) if is_inexact(like)]
        y = np.concatenate(flat) if flat else np.zeros(0)
        return y.astype(np.result_type(y, np.float64))

    def at(self, k: float) -> np.ndarray:
        """Outputs at ``x + k t``, NaN where the function raises as one does outside its domain."""
        xs = [x if t is None else (x + x.dtype.type(k) * t).astype(x.dtype)
              for x, t in zip(self.xs, self.ts, strict=True)]
        try:
            with np.errstate(all="ignore"):
                return self.joined(self.f(xs, self.options))
        except (ValueError, ArithmeticError):
            return np.full_like(self.center, np.nan)


def _largest(x: np.ndarray) -> float:
    """The largest finite size among entries."""
    size = np.abs(x)
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))


class Trial(NamedTuple):
    """Slopes with one step, by entry; ``ok`` where they keep what is promised."""

    slope: np.ndarray
    margin: np.ndarray  # how far slopes may differ
    noise: np.ndarray  # how far they do by rounding
    still: np.ndarray  # whether the function stays the same
    sane: np.ndarray  # whether it looks smooth, or has a kink at x
    ok: np.ndarray

    @property
    def quiet(self) -> np.ndarray:
        """Whether the function changes too little to be told from rounding."""
        return self.noise > self.margin


class Search:
    """The slope of each entry of a line, and whether it has been found."""

    def __init__(self, line: Line, order: int, loose: bool):
        self.line = line
        outputs = [y for y in line.middle if is_inexact(y)]
        eps = np.concatenate([np.full(y.size, float(finfo(y.dtype).eps)) for y in outputs])
        kept = 0.8 ** (order - 1)  # differences have lost a fifth of the digits, and some rounding
        self.eps = 4.0 ** (order - 1) * np.maximum(eps, line.eps) ** kept
        self.rtol = self.eps ** (1 / 3 if loose else 0.4)
        self.first = _power_of_two(line.eps ** (0.2 * kept) * (line.scale or 1.0), line.length)
        self.pairs: dict[float, tuple[np.ndarray, np.ndarray]] = {}
        self.slope = np.full_like(line.center, np.nan)
        self.best, self.error = self.slope.copy(), np.full(line.center.shape, np.inf)
        self.open = np.isfinite(line.center)

    def run(self) -> None:
        """Find what can be found."""
        if not np.isfinite(self.line.length):
            return
        first = self.trial(self.first)
        self.accept(first.ok, first.slope)
        self.accept(self.flat(first), 0.0)
        size = (self.line.scale or 1.0) / self.line.length
        self.sweep(first, 0.25, lambda h: h >= 16 * self.line.eps * size)
        self.sweep(first, 4.0, lambda h: h <= WIDE * max(size, 1 / self.line.length))
        rough = self.open & ~first.quiet
        self.open = self.open & first.quiet
        self.sweep(first, 4.0, lambda h: h <= WIDEST * max(size, 1 / self.line.length))
        self.open = self.open | rough

    def accept(self, ok: np.ndarray, slope: Any) -> None:
        ok = ok & self.open
        self.slope[ok] = slope[ok] if isinstance(slope, np.ndarray) else slope
        self.open = self.open & ~ok

    def flat(self, first: Trial) -> np.ndarray:
        """Which entries stay the same: to the bit over a step, or but for rounding over half of x.

        Neither over a tiny step alone.
        """
        length, ahead = self.line.length, self.pairs[self.first][0]
        exact, flat = first.still & (ahead == self.line.center), first.still
        if self.first * length < FLAT and np.any(exact & self.open):
            exact = exact & self.stays(FLAT / length)
        if np.any(flat & ~exact & self.open):
            flat = flat & self.stays(max(FLAT, 0.5 * self.line.scale) / length)
        return exact | flat

    def stays(self, h: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self.same(self.line.at(h)) & self.same(self.line.at(-h))

    def same(self, y: np.ndarray) -> np.ndarray:
        """Where values differ from those at x by rounding at most."""
        c = self.line.center
        return np.abs(y - c) <= 2 * self.eps * np.maximum(np.abs(y), np.abs(c))

    def sweep(self, last: Trial, factor: float, within: Callable[[float], bool]) -> None:
        """Change the step until two in turn agree: one might have done so by chance.

        Steps that grow leave rounding behind, and go on while slopes agree better and better.
        """
        h, best = self.first * factor, np.full(self.open.shape, np.inf)
        slope, last_gap = self.slope.copy(), best
        while self.open.any() and within(h):
            trial = self.trial(h)
            with np.errstate(all="ignore"):
                gap = np.maximum(np.abs(trial.slope - last.slope), trial.noise)
            if factor < 1:
                self.accept(trial.ok & (gap <= trial.margin), trial.slope)
                if np.all(trial.quiet[self.open]):
                    break
            else:
                both = np.maximum(gap, last_gap)
                ok = self.open & trial.sane & (both <= trial.margin) & (gap < best)
                slope[ok], best[ok] = trial.slope[ok], gap[ok]
                if np.all((16 * best < gap)[self.open]):
                    break
            last, last_gap, h = trial, gap, h * factor
        self.accept(np.isfinite(best), slope)

    def trial(self, h: float) -> Trial:
        """The slopes with this step."""
        ahead, back, c = *self.pair(h), self.line.center
        near, near_back = self.pair(NEAR * h)
        self.pairs = {k: v for k, v in self.pairs.items() if k in (h, NEAR * h, self.first)}
        with np.errstate(all="ignore"):
            half = (near - near_back) / (2 * NEAR * h)
            slope = (half - NEAR**2 * ((ahead - back) / (2 * h))) / (1 - NEAR**2)
            change = np.maximum(np.abs(ahead - c), np.abs(back - c))
            top = np.maximum(np.abs(c), np.maximum(np.abs(ahead), np.abs(back)))
            margin = self.rtol * np.maximum(np.abs(slope), change / h)
            noise = self.eps * top / (NEAR * h)
            error = np.maximum(np.abs(slope - half), noise)
            # a smooth function bends by the square of the step, one with a kink at x by the step
            bend, near_bend = np.abs(ahead - 2 * c + back), np.abs(near - 2 * c + near_back)
            bends = (bend >= 2 * near_bend) | (near_bend <= 8 * self.eps * top)
            still = self.same(ahead) & self.same(back)
            better = error < self.error
            self.best[better], self.error[better] = slope[better], error[better]
            sane = bends & (change > 0) & (error <= COARSE * margin / self.rtol)
            ok = sane & (error <= margin)
        return Trial(slope, margin, noise, still, sane, ok)

    def pair(self, h: float) -> tuple[np.ndarray, np.ndarray]:
        """The function a step ahead and a step back."""
        if h not in self.pairs:
            self.pairs[h] = self.line.at(h), self.line.at(-h)
        return self.pairs[h]

    def confirm(self, slope: np.ndarray | None) -> None:
        """Take slopes that were found otherwise, where differences agree as far as they go."""
        if slope is None:
            return
        with np.errstate(all="ignore"):
            gap = np.abs(slope - self.best)
            # a guess without two digits of its own confirms nothing
            sure = self.error <= 0.01 * np.abs(self.best)
            agrees = np.where(self.open, sure & (gap <= 4 * self.error), gap <= 4 * self.error)
            agrees &= np.isfinite(self.line.center)
        self.slope[agrees] = slope[agrees]

    def results(self) -> list:
        """The tangents of the outputs, None of those without one."""
        found, start = list[Any](), 0
        for y in self.line.middle:
            if not is_inexact(y):
                found.append(None)
                continue
            slope = self.slope[start : start + y.size].reshape(y.shape)
            found.append((slope if y.dtype.kind == "c" else np.real(slope)).astype(y.dtype))
            start += y.size
        return found


def _power_of_two(size: float, length: float) -> float:
    """A step so long along a tangent, which adds no rounding."""
    return float(2.0 ** np.round(np.log2(size) - np.log2(length)))


class Complexes:
    """The complex step of a function, until it turns out to take no complex numbers."""

    def __init__(self, f: Callable):
        self.f = f
        self.takes: bool | None = None

    def slopes(self, line: Line) -> np.ndarray | None:
        """The slopes of the outputs along a line, NaN of those that came back real."""
        moving = [x for x, t in zip(line.xs, line.ts, strict=True) if t is not None]
        if self.takes is False or any(x.dtype.kind != "f" for x in [*moving, *line.middle]):
            return None
        h = _power_of_two(IMAGINARY * (line.scale or 1.0), line.length)
        xs = [x if t is None else x + x.dtype.type(h) * t * 1j
              for x, t in zip(line.xs, line.ts, strict=True)]
        try:
            if self.takes:
                ys = self.f(xs, line.options)
            else:  # not in each call: filters of warnings are of all threads
                with warnings.catch_warnings():
                    warnings.simplefilter("error", np.exceptions.ComplexWarning)
                    ys = self.f(xs, line.options)
        except Exception:  # whatever a function raises that takes real numbers only
            self.takes = False
            return None
        same = [y.shape for y in ys] == [y.shape for y in line.middle]
        self.takes = same and any(y.dtype.kind == "c" for y in ys)
        if not self.takes:
            return None
        return line.joined([np.imag(y) / h if y.dtype.kind == "c" else np.full(y.shape, np.nan)
                            for y in ys])
