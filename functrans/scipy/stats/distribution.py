"""How a distribution of ``functrans.scipy.stats`` is made of its standard form.

A ``Form`` states a distribution at location 0 and scale 1, in functions of rows. The classes add
what all have in common: SciPy's arguments, location and scale, the support, conditions on the
parameters, frozen distributions. Outside of the support a logarithm of the density is -inf and its
derivative 0; where parameters are not valid both are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from functrans._core.bind import AnyArray, Tracer
from functrans._ops import elementwise as ops
from functrans._ops.declare import where
from functrans._ops.special.declare import expm1, log1mexp, log1p
from functrans._ops.special.distributions import counts, less_log, standardised
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import concrete
from functrans.scipy.public import is_traced
from functrans.scipy.stats.conditions import (
    asked,
    both,
    chosen,
    nan_or,
    numbers_of,
    or_nan,
    quantile_kept,
    same_number,
    without_slope,
)

# The support's ends of forms that say nothing of infinity.
LARGEST = float(np.finfo(float).max)
FINITE = (-LARGEST, LARGEST)


@dataclass(frozen=True, eq=False)
class Form:
    """A distribution at location 0 and scale 1.

    Functions take the variable, or a probability, and then the shapes; moments the shapes alone.
    Of logarithms that are not given, ``_log`` of the functions is taken. ``placed``: the logarithm
    of the density at a location and scale in one row, of a variable without bounds. ``ends``: where
    the density may be 0 and its logarithm has lost the slope, and the density itself, by powers.
    """

    log_density: Callable
    cdf: Callable
    sf: Callable
    ppf: Callable | None = None
    isf: Callable | None = None
    logcdf: Callable | None = None
    logsf: Callable | None = None
    mean: Callable | None = None
    var: Callable | None = None
    entropy: Callable | None = None
    valid: Callable | None = None
    support: tuple[Any, Any] = (-math.inf, math.inf)
    placed: Callable | None = None
    ends: tuple[Callable, Callable] | None = None

    def density(self, y: Any, z: Any, shapes: list[Any], inside: Any) -> AnyArray:
        """exp(y) of the logarithm ``y`` at z, and what stands for it at the ends."""
        y = ops.exp(y)
        if self.ends is None:
            return y
        is_end, by_powers = self.ends
        end = both(inside, asked(is_end, z, *shapes))
        if not isinstance(end, Tracer) and not np.any(end):
            return y
        return where(end, by_powers(z, *shapes), y)


def by_hazard(hazard: Callable, inverse: Callable | None = None) -> dict[str, Any]:
    """Functions of a ``Form`` by the cumulative hazard -log(sf), none of which loses digits."""
    functions = {
        "cdf": lambda x, *s: -expm1(-hazard(x, *s)), "sf": lambda x, *s: ops.exp(-hazard(x, *s)),
        "logcdf": lambda x, *s: log1mexp(hazard(x, *s)), "logsf": lambda x, *s: -hazard(x, *s),
    }
    if inverse is not None:
        functions["ppf"] = lambda q, *s: inverse(-log1p(-q), *s)
        functions["isf"] = lambda q, *s: inverse(-ops.log(q), *s)
    return functions


def odd(cdf: Callable, ppf: Callable, logcdf: Callable | None = None) -> dict[str, Any]:
    """Functions of a ``Form`` whose density is even."""
    functions = {
        "cdf": cdf, "sf": lambda x, *s: cdf(-x, *s),
        "ppf": ppf, "isf": lambda q, *s: -ppf(q, *s),
    }
    if logcdf is not None:
        functions |= {"logcdf": logcdf, "logsf": lambda x, *s: logcdf(-x, *s)}
    return functions


def _wide(x: Any) -> AnyArray:
    """As SciPy's distributions, which compute in float64 at least."""
    if x.dtype == np.float64:
        return x
    dtype = np.promote_types(x.dtype, np.float64)
    return x if x.dtype == dtype else x.astype(dtype)


def _log(one: Callable, other: Callable) -> Callable:
    """log(one) for one + other = 1, by whichever is the smaller."""

    def log_of(*xs: Any) -> AnyArray:
        small, large = one(*xs), other(*xs)
        return where(small < 0.5, ops.log(small), log1p(-large))

    return log_of


class Named:
    """A distribution under SciPy's name: of plain arrays SciPy's own runs.

    Methods take what SciPy's take: the variable, then the parameters. Called with parameters it is
    a frozen distribution, whose methods take the variable alone.
    """

    methods: ClassVar[tuple[str, ...]] = ()

    def __init__(self, theirs: Any, name: str):
        self.theirs, self.name = theirs, name

    def __call__(self, *args: Any, **kwds: Any) -> Frozen:
        return Frozen(self, args, kwds)

    def freeze(self, *args: Any, **kwds: Any) -> Frozen:
        """The distribution with its parameters fixed."""
        return Frozen(self, args, kwds)

    def __repr__(self) -> str:
        return f"<functrans.scipy.stats.{self.name}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _of_scipy(self, getattr(self.theirs, name), name)

    def _has(self) -> list[str]:
        return [*self.methods]

    def _lacks(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{user_line()}: functrans.scipy.stats.{self.name} has no {what} of traced values; it "
            f"has {', '.join(self._has())}. Pass constants, ft.stop_gradient(x), or wrap the call "
            "with ft.external."
        )


def method(ours: Callable) -> Callable:
    """A method with SciPy's name, which runs SciPy's own where nothing is traced."""
    name = ours.__name__

    def either(self: Any, *args: Any, **kwds: Any) -> Any:
        if not any([isinstance(x, Tracer) for x in args]) and not is_traced((args, kwds)):
            return getattr(self.theirs, name)(*args, **kwds)
        with np.errstate(all="ignore"):
            return ours(self, *args, **kwds)

    either.__name__, either.__doc__ = name, ours.__doc__
    return either


class _Distribution(Named):
    __doc__ = Named.__doc__

    scales: ClassVar[tuple[str, ...]] = ()

    def __init__(self, theirs: Any, shapes: str, form: Form):
        super().__init__(theirs, theirs.name)
        self.form = form
        self.parameters = (*shapes.split(), "loc", *self.scales)
        self.logcdf_ = form.logcdf or _log(form.cdf, form.sf)
        self.logsf_ = form.logsf or _log(form.sf, form.cdf)

    def _parameters(self, args: tuple, kwds: dict[str, Any]) -> list[Any]:
        """The shapes, the location and the scale, if there is one, in this order."""
        names, n = self.parameters, len(args)
        if n == len(names) and not kwds:
            return [as_operand(v) for v in args]
        if n > len(names):
            raise TypeError(f"{self.name} takes {', '.join(names)}, and got {n} parameters")
        values: list[Any] = [*args]
        for name in names[n:]:
            if name in kwds:
                values.append(kwds[name])
            elif name in ("loc", "scale"):
                values.append(None)
            else:
                raise TypeError(f"{self.name} misses the parameter {name!r}")
        unknown = [k for k in kwds if k not in names[n:]]
        if unknown:
            raise TypeError(
                f"{self.name} takes {', '.join(names)}, and got {unknown[0]!r} besides or twice"
            )
        return [v if v is None else as_operand(v) for v in values]

    def _placing(self, args: tuple, kwds: dict[str, Any]) -> tuple[list[Any], Any, Any]:
        """The shapes, the location, and the scale, which counts have none of."""
        values = self._parameters(args, kwds)
        return (values[:-2], *values[-2:]) if self.scales else (values[:-1], values[-1], None)

    def _valid(self, shapes: list[Any], scale: Any) -> AnyArray:
        valid: Any = True if scale is None else asked(lambda s: s > 0, scale)
        if self.form.valid is None:
            return valid
        return both(valid, asked(self.form.valid, *shapes))

    def _distribution(self, f: Callable, x: Any, args: tuple, kwds: dict, low: float, high: float):
        """``f`` of the variable; ``low`` below the support, and ``high`` above."""
        raise NotImplementedError

    @method
    def cdf(self, x, *args, **kwds):
        """The distribution function."""
        return self._distribution(self.form.cdf, x, args, kwds, 0.0, 1.0)

    @method
    def sf(self, x, *args, **kwds):
        """The survival function, 1 - cdf."""
        return self._distribution(self.form.sf, x, args, kwds, 1.0, 0.0)

    @method
    def logcdf(self, x, *args, **kwds):
        """The logarithm of the distribution function."""
        return self._distribution(self.logcdf_, x, args, kwds, -np.inf, 0.0)

    @method
    def logsf(self, x, *args, **kwds):
        """The logarithm of the survival function."""
        return self._distribution(self.logsf_, x, args, kwds, 0.0, -np.inf)

    def _moment(self, name: str, args: tuple, kwds: dict, place: Callable) -> AnyArray:
        f = getattr(self.form, name)
        if f is None:
            raise self._lacks(name)
        shapes, loc, scale = self._placing(args, kwds)
        y = place(f(*shapes), loc, scale)
        shape = np.broadcast_shapes(*[p.shape for p in (*shapes, loc, scale) if p is not None])
        y = y if np.shape(y) == shape else np.broadcast_to(as_operand(y), shape)
        y = without_slope(y, [*shapes, loc, scale])
        return or_nan(self._valid(shapes, scale), y, *shapes, scale)

    @method
    def mean(self, *args, **kwds):
        """The mean."""
        return self._moment("mean", args, kwds, _place)

    @method
    def var(self, *args, **kwds):
        """The variance."""
        return self._moment("var", args, kwds, lambda y, _, s: y if s is None else y * (s * s))

    @method
    def std(self, *args, **kwds):
        """The standard deviation."""
        return self._moment("var", args, kwds,
                            lambda y, _, s: ops.sqrt(y) if s is None else ops.sqrt(y) * s)

    @method
    def entropy(self, *args, **kwds):
        """The entropy, of a density the differential one."""
        return self._moment("entropy", args, kwds,
                            lambda y, _, s: y if s is None else y + ops.log(s))

    def _has(self) -> list[str]:
        optional = {"ppf", "isf", "mean", "var", "entropy"}
        needs = {"std": "var", "interval": "ppf", "median": "ppf"}
        return [m for m in self.methods if (n := needs.get(m, m)) not in optional
                or getattr(self.form, n) is not None]


def _of_scipy(owner: Named, theirs: Any, name: str) -> Any:
    """An attribute of SciPy's own distribution, which refuses traced values if it is a method."""
    if not callable(theirs):
        return theirs

    def method(*args: Any, **kwds: Any) -> Any:
        if is_traced((args, kwds)):
            raise owner._lacks(name)
        return theirs(*args, **kwds)

    return method


class Frozen:
    """A distribution with its parameters fixed, as SciPy's."""

    def __init__(self, dist: Named, args: tuple, kwds: dict[str, Any]):
        self.dist, self.args, self.kwds = dist, args, kwds
        if not is_traced((args, kwds)):
            dist.theirs(*args, **kwds)  # SciPy's own checks of the parameters

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "rvs" and hasattr(type(self.dist), name):
            return lambda size=1, random_state=None: self.dist.rvs(
                *self.args, size=size, random_state=random_state, **self.kwds)
        if name in self.dist.methods:
            method = getattr(self.dist, name)
            return lambda *xs: method(*xs, *self.args, **self.kwds)
        if is_traced((self.args, self.kwds)):
            raise self.dist._lacks(name)
        return _of_scipy(self.dist, getattr(self.dist.theirs(*self.args, **self.kwds), name), name)

    def __repr__(self) -> str:
        return f"<functrans.scipy.stats.{self.dist.name} frozen>"


class Continuous(_Distribution):
    __doc__ = _Distribution.__doc__

    scales = ("scale",)
    methods = ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "mean", "var", "std",
               "entropy", "median", "interval")

    def _standard(self, x: Any, args: tuple, kwds: dict[str, Any]) -> tuple[Any, ...]:
        """The variable at location 0 and scale 1, the shapes, the scale, where all is valid."""
        shapes, loc, scale = self._placing(args, kwds)
        z = as_operand(x)
        if loc is not None:
            z = ops.subtract(z, loc) if scale is None else standardised(z, loc, scale)
        elif scale is not None:
            z = ops.divide(z, scale)
        return _wide(z), shapes, scale, self._valid(shapes, scale)

    def _sides(self, z: Any, shapes: list[Any]) -> tuple[Any, Any]:
        """Where z is not below the support, and where it is not above."""
        low, high = self.form.support

        def at_least(z: Any, *s: Any) -> Any:
            return z >= (low(*s) if callable(low) else low)

        def at_most(z: Any, *s: Any) -> Any:
            return z <= (high(*s) if callable(high) else high)

        return (
            True if low == -math.inf else asked(at_least, z, *shapes),
            True if high == math.inf else asked(at_most, z, *shapes),
        )

    @method
    def logpdf(self, x, *args, **kwds):
        """The logarithm of the density; -inf outside of the support."""
        if self.form.placed is not None:
            loc, scale = self._parameters(args, kwds)
            x, loc = _wide(as_operand(x)), 0.0 if loc is None else loc
            return self.form.placed(x, loc, 1.0 if scale is None else _positive(scale))
        z, shapes, scale, valid = self._standard(x, args, kwds)
        y = self.form.log_density(z, *shapes)
        y = y if scale is None else less_log(y, scale)
        y = chosen(both(*self._sides(z, shapes)), y, nan_or(z, -np.inf))
        return or_nan(valid, y, z, *shapes)

    @method
    def pdf(self, x, *args, **kwds):
        """The density."""
        if self.form.ends is None:
            return ops.exp(self.logpdf(x, *args, **kwds))
        z, shapes, scale, valid = self._standard(x, args, kwds)
        inside = both(*self._sides(z, shapes))
        y = chosen(inside, self.form.log_density(z, *shapes), nan_or(z, -np.inf))
        y = self.form.density(y, z, shapes, inside)
        return or_nan(valid, y if scale is None else y / scale, z, *shapes)

    def _distribution(self, f: Callable, x: Any, args: tuple, kwds: dict, low: float, high: float):
        z, shapes, _, valid = self._standard(x, args, kwds)
        above, below = self._sides(z, shapes)
        y = chosen(above, f(z, *shapes), nan_or(z, low))
        y = chosen(below, y, nan_or(z, high))
        return or_nan(valid, y, z, *shapes)

    def _quantile(self, f: Callable | None, name: str, q: Any, args: tuple, kwds: dict) -> AnyArray:
        if f is None:
            raise self._lacks(name)
        shapes, loc, scale = self._placing(args, kwds)
        q = _wide(as_operand(q))
        valid = both(self._valid(shapes, scale), asked(lambda q: (q >= 0) & (q <= 1), q))
        return or_nan(valid, _place(f(q, *shapes), loc, scale), q, *shapes, loc, scale)

    @method
    def ppf(self, q, *args, **kwds):
        """The inverse of the distribution function."""
        return self._quantile(self.form.ppf, "ppf", q, args, kwds)

    @method
    def isf(self, q, *args, **kwds):
        """The inverse of the survival function."""
        return self._quantile(self.form.isf, "isf", q, args, kwds)

    @method
    def median(self, *args, **kwds):
        """The median."""
        return self._quantile(self.form.ppf, "median", 0.5, args, kwds)

    @method
    def interval(self, confidence, *args, **kwds):
        """The ends of the interval about the median that has a probability."""
        tail = 0.5 * (1 - as_operand(confidence))
        return self.ppf(tail, *args, **kwds), self.isf(tail, *args, **kwds)

    def rvs(self, *args, size=1, random_state=None, **kwds):
        """SciPy's random numbers, differentiated in the parameters as quantiles are."""
        n = len(self.parameters)
        rest = dict(zip(("size", "random_state"), args[n:], strict=False))
        rest = {"size": size, "random_state": random_state} | rest
        numbers, named = numbers_of(self.name, (args[:n], kwds))
        x = self.theirs.rvs(*numbers, **named, **rest)
        if not is_traced((args, kwds)):
            return x
        shapes, loc, scale = self._placing(args[:n], kwds)
        plain = [np.asarray(1.0 if p is None else concrete(p)) for p in (loc, scale)]
        z = (x - (0.0 if loc is None else plain[0])) / plain[1]
        z = quantile_kept(self.form, z, shapes)
        return same_number(x, _place(z, loc, scale))


def _positive(scale: Any) -> AnyArray:
    """The scale, and NaN where it is not valid: so are then all results, and all slopes."""
    valid = asked(lambda s: s > 0, scale)
    if not isinstance(valid, Tracer) and np.all(valid):
        return scale
    return scale * where(valid, 1.0, np.nan)


def _place(z: Any, loc: Any, scale: Any) -> AnyArray:
    z = z if scale is None else z * scale
    return z if loc is None else z + loc


class Discrete(_Distribution):
    __doc__ = _Distribution.__doc__

    methods = ("pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "mean", "var", "std", "entropy")

    def _variable(self, k: Any, args: tuple, kwds: dict[str, Any]) -> tuple[Any, list[Any], Any]:
        shapes, loc, _ = self._placing(args, kwds)
        k = as_operand(k)
        k = k if loc is None else ops.subtract(k, loc)
        return _wide(k), shapes, self._valid(shapes, None)

    @method
    def logpmf(self, k, *args, **kwds):
        """The logarithm of the probability of k; -inf where k is no whole number."""
        k, shapes, valid = self._variable(k, args, kwds)
        y = self.form.log_density(count(k), *shapes)
        y = chosen(self._inside(k, shapes), y, nan_or(k, -np.inf))
        return or_nan(valid, y, *shapes)

    def _inside(self, k: Any, shapes: list[Any]) -> AnyArray:
        low, high = self.form.support
        top = high if callable(high) else lambda *_: high
        return asked(lambda k, *s: (k >= low) & (k <= top(*s)) & (np.floor(k) == k), k, *shapes)

    @method
    def pmf(self, k, *args, **kwds):
        """The probability of k."""
        y = self.logpmf(k, *args, **kwds)
        k, shapes, valid = self._variable(k, args, kwds)
        y = self.form.density(y, count(k), shapes, self._inside(k, shapes))
        return or_nan(valid, y, *shapes)

    def _distribution(self, f: Callable, x: Any, args: tuple, kwds: dict, low: float, high: float):
        k, shapes, valid = self._variable(x, args, kwds)
        first, last = self.form.support
        top = last if callable(last) else lambda *_: last
        y = f(count(k), *shapes)
        y = chosen(asked(lambda k: k >= first, k), y, nan_or(k, low))
        y = chosen(asked(lambda k, *s: ~(k >= top(*s)), k, *shapes), y, high)
        return or_nan(valid, y, *shapes)


def count(k: Any) -> AnyArray:
    """The whole part of a count: it has no derivative, and one that is taken in it raises."""
    return counts(k, 0.0) if isinstance(k, Tracer) and k.dtype.kind == "f" else np.floor(k)
