"""Functions that cannot be looked into: simulators, solvers, compiled code.

Such a function becomes an op that is run on plain ndarrays. So do its JVP and its VJP: each is
linear in tangents or cotangents, with the other one as its transpose, and as a function of the
point it again cannot be looked into. That gives every order in every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Aval, aval_of, is_inexact, plain
from functrans._core.bind import AnyArray, Tracer, cast
from functrans._core.plain import placed
from functrans._ops.declare import General
from functrans._transforms.arguments import describe, is_number, require_callable
from functrans._transforms.derived import ByValue
from functrans._transforms.rules.differences import DerivativeRule, differences, inner, rule_of
from functrans._transforms.vmap import vmap
from functrans.errors import ArgumentError, CheckError, ShapeError, name_of


def external(
    f: Callable,
    *,
    jvp: Callable | None = None,
    vjp: Callable | None = None,
    jac: Callable | None = None,
    outputs: int = 1,
    example: Sequence | None = None,
) -> Callable:
    """``f``, which functrans cannot trace, as a function that every transform takes.

    ``f(*arrays, **options)`` gets plain ndarrays of its own and returns an array, or a tuple of as
    many as ``outputs`` says; it must be pure. Its derivative comes from, whichever are given,

    - ``jvp(primals, tangents)``: the tangent of the output, ``J t``;
    - ``vjp(primals, ct)``: a tuple of ``v^T J``, one an argument, not conjugated;
    - ``jac(*primals)``: the Jacobian, of shape ``out.shape + in.shape``, a tuple of them where
      there are several arguments, and a tuple of those where there are several outputs;
    - else from differences, to 11 digits or more at most points: four runs of ``f`` for a tangent,
      as many for each entry of its arguments for a gradient, twice as many where it is complex, and
      more where a step that fits the size of ``x`` does not fit ``f``. Entries in which no step
      gives six digits (three of float32) are NaN. Where ``f`` takes complex numbers and is
      analytic, one run more gives all digits.

    Complex arguments and results are taken as they are in the rest of functrans: ``f`` need not be
    holomorphic, ``J t`` is its change along ``t``, and ``vjp`` returns ``c`` for ``v`` so that
    ``Re(c . t) = Re(v . J t)``, without a conjugate. ``jac`` holds such ``c``, for
    complex results the complex derivatives; of a function that has none, give ``jvp`` or ``vjp``.

    Zeros stand for tangents that are absent, None for those of integers. The options are passed on
    to the rules. With one of ``jvp`` and ``vjp`` the other mode applies it to unit vectors. Second
    derivatives are differences of these rules. ``vmap`` runs ``f`` once a slice; ``jit`` leaves
    compiled code for it and comes back.

    A rule is compared with differences once: here, at the arguments ``example``, or at the first
    point that is differentiated. Raises CheckError where they disagree, ArgumentError or ShapeError
    where what ``f`` or a rule returns does not fit.

    >>> import math, functrans as ft
    >>> gamma = ft.external(lambda x: math.gamma(x))
    >>> round(float(ft.grad(gamma)(1.0)), 8)
    -0.57721566
    """
    require_callable("external", f)  # not followed: it gets plain arrays
    name = f"external({name_of(f)})"
    for what, rule in (("jvp", jvp), ("vjp", vjp), ("jac", jac)):
        if rule is not None and not callable(rule):
            raise ArgumentError(f"{name}: {what} must be a function, but is {describe(rule)}")
    if jac is not None and (jvp is not None or vjp is not None):
        raise ArgumentError(f"{name}: give jac, or jvp and vjp, but not both")
    if outputs < 1:
        raise ArgumentError(f"{name}: outputs must be at least 1, but is {outputs}")
    box = ExternalFunction(name, f, jvp, vjp, jac, outputs)
    if example is not None:
        box.verify([np.array(x) for x in box.operands(tuple(example))], {})
    return box


class ExternalFunction(ByValue):
    """What ``external`` returns: called, it is the op."""

    def __init__(self, name: str, f: Callable, jvp: Any, vjp: Any, jac: Any, outputs: int):
        self.name = self.__name__ = name
        self.__doc__ = getattr(f, "__doc__", None)
        self.__wrapped__ = f
        self.__qualname__ = getattr(f, "__qualname__", "")
        self.__module__ = getattr(f, "__module__", "") or ""
        self.outputs = outputs
        self.parts = {"jvp": jvp, "vjp": vjp, "jac": jac}
        candidates = {
            "jvp": rule_of(self.values, jvp=self.tangents) if jvp else None,
            "vjp": rule_of(self.values, vjp=self.cotangents) if vjp else None,
            "jac": rule_of(self.values, jacobians=self.jacobians) if jac else None,
        }
        self.rules = {what: rule for what, rule in candidates.items() if rule is not None}
        self.verified = not self.rules
        rules = list(self.rules.values()) or [differences(self.values)]
        # where the user gave both, each mode has its own
        first, last = self._verified_first(rules[0].jvp), self._verified_first(rules[-1].vjp)
        rule = DerivativeRule(first, last, rules[0].differenced)
        self.opaque = OpaqueOp(name, self.values, rule, outputs)

    def __repr__(self) -> str:
        return self.name

    def by_value(self) -> tuple:
        return ExternalFunction, (self.name, self.__wrapped__, *self.parts.values(), self.outputs)

    def __call__(self, *args: Any, **options: Any) -> Any:
        for key, x in options.items():
            if isinstance(x, Tracer):
                raise ArgumentError(
                    f"{self.name}: the option {key!r} is traced. Pass it by position: only "
                    "positional arguments are differentiated, batched and compiled."
                )
        return self.opaque.row(*self.operands(args), **options)

    def operands(self, args: tuple) -> list:
        """The arguments as arrays and traced values."""
        for i, x in enumerate(args):
            if not is_number(x) and type(x) not in PYTHON_SCALARS:
                raise ArgumentError(
                    f"{self.name}: argument {i} must be an array or a number, but is "
                    f"{describe(x)}. Pass the parts of a container one by one, and what is no "
                    "number by keyword."
                )
        return [np.asarray(x) if type(x) in PYTHON_SCALARS else plain(x) for x in args]

    # ---- the user's functions, with their results as arrays that fit

    def values(self, xs: Sequence, options: dict) -> list:
        """The outputs of the function."""
        out = self.__wrapped__(*[np.array(x) for x in xs], **options)
        outs = list(out) if self.outputs > 1 and isinstance(out, tuple | list) else [out]
        if len(outs) != self.outputs or not all(map(is_number, outs)):
            wanted = "an array" if self.outputs == 1 else f"a tuple of {self.outputs} arrays"
            raise ArgumentError(
                f"{self.name}: the function must return {wanted}, but returned {describe(out)}. "
                "The number of arrays is the option outputs=."
            )
        return [np.array(plain(y)) for y in outs]  # it may use the memory again

    def tangents(self, xs: Sequence, ts: Sequence, options: dict) -> list:
        full = [
            np.zeros_like(x) if t is None and is_inexact(x) else t
            for x, t in zip(xs, ts, strict=True)
        ]
        out = self.parts["jvp"](tuple(map(np.array, xs)), tuple(full), **options)
        return self._fitted("jvp", [out] if self.outputs == 1 else out, self.avals(xs, options))

    def cotangents(self, xs: Sequence, cts: Sequence, options: dict) -> list:
        ys = self.avals(xs, options)
        full = [
            np.zeros(y.shape, y.dtype) if ct is None and is_inexact(y) else ct
            for y, ct in zip(ys, cts, strict=True)
        ]
        ct = full[0] if self.outputs == 1 else tuple(full)
        out = self.parts["vjp"](tuple(map(np.array, xs)), ct, **options)
        out = [out] if len(xs) == 1 and not isinstance(out, tuple | list) else out
        return self._fitted("vjp", out, [aval_of(x) for x in xs])

    def jacobians(self, xs: Sequence, options: dict) -> list[list]:
        out = self.parts["jac"](*map(np.array, xs), **options)
        rows = [out] if self.outputs == 1 else out
        ys, avals = self.avals(xs, options), [aval_of(x) for x in xs]
        self._require_count("jac", rows, self.outputs)
        matrices = []
        for y, row in zip(ys, rows, strict=True):
            row = [row] if len(xs) == 1 and not isinstance(row, tuple | list) else row
            shapes = [Aval(y.shape + x.shape, x.dtype) for x in avals]
            matrices.append(self._fitted("jac", row, shapes))
        return matrices

    def avals(self, xs: Sequence, options: dict) -> list[Aval]:
        return self.opaque.out_avals([aval_of(x) for x in xs], options, xs)

    def _fitted(self, what: str, results: Any, wanted: Sequence[Aval]) -> list:
        self._require_count(what, results, len(wanted))
        out = []
        for i, (x, a) in enumerate(zip(results, wanted, strict=True)):
            if x is None or not is_inexact(a):
                out.append(None)
                continue
            x = np.array(plain(x))
            if x.shape != a.shape or x.dtype.kind not in "biufcV":
                raise ShapeError(
                    f"{self.name}: entry {i} of what {what} returned is {aval_of(x)!r}, but must "
                    f"have the shape {a.shape}"
                )
            out.append(x)
        return out

    def _require_count(self, what: str, results: Any, n: int) -> None:
        if not isinstance(results, tuple | list) or len(results) != n:
            raise ArgumentError(
                f"{self.name}: {what} must return a tuple of {n}, but returned {describe(results)}"
            )

    # ---- the check

    def _verified_first(self, rule: Callable) -> Callable:
        def checked(xs: Sequence, changes: Sequence, options: dict) -> list:
            if not self.verified:
                self.verify(xs, options)
            return rule(xs, changes, options)

        return checked

    def verify(self, xs: Sequence, options: dict) -> None:
        """Compare what rules there are with differences, along a random direction."""
        rng = np.random.default_rng(0)
        ys = self.values(xs, options)
        ts, cts = ([_direction(rng, x) if is_inexact(x) else None for x in v] for v in (xs, ys))
        numeric = differences(self.values, loose=True).jvp(xs, ts, options)
        eps = max([float(np.finfo(x.dtype).eps) for x in [*xs, *ys] if is_inexact(x)], default=0.0)
        for what, rule in self.rules.items():
            actual, expected = rule.jvp(xs, ts, options) if what != "vjp" else [], numeric
            sizes = [_size(n) for n in numeric]
            if what == "vjp":
                actual = [np.real(inner(rule.vjp(xs, cts, options), ts))]
                expected = [np.real(inner(cts, numeric))]
                sizes = [inner(map(_size, cts), sizes)]
            elif what == "jac":  # of a real result the complex Jacobian counts by its real part
                pairs = zip(actual, ys, strict=True)
                actual = [x if x is None else cast(x, y.dtype) for x, y in pairs]
            for x, n, y, size in zip(actual, expected, ys, sizes, strict=False):
                self._compare(what, x, n, y, size, eps ** (1 / 3))
        self.verified = True

    def _compare(
        self, what: str, actual: Any, expected: Any, y: np.ndarray, size: Any, rtol: float
    ) -> None:
        if expected is None or not np.all(np.isfinite(expected)):
            return
        actual = np.zeros_like(expected) if actual is None else np.asarray(actual)
        largest = max(float(np.max(size, initial=0)), 1e-3 * float(np.max(np.abs(y), initial=0)))
        error = np.asarray(np.abs(actual - expected))
        if np.all(error <= rtol * largest):
            return
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        at = np.unravel_index(worst, error.shape)
        raise CheckError(
            f"{self.name}: {what} is wrong: along a random direction it gives {actual[at]:.8g}, "
            f"where differences of the function give {np.asarray(expected)[at]:.8g} (entry {at}). "
            "If the function is not smooth at this point, pass example= with arguments where it is."
        )


def _direction(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    def draw() -> np.ndarray:
        return rng.choice([-1.0, 1.0], x.shape) * rng.uniform(0.5, 1.5, x.shape)

    return (draw() + 1j * draw() if x.dtype.kind == "c" else draw()).astype(x.dtype)


def _size(x: np.ndarray | None) -> np.ndarray | None:
    return None if x is None else np.abs(x)


class OpaqueOp:
    """A function of ndarrays as a row, ``f(xs, options)``, and the rows of its derivative.

    ``further`` makes the rule of such a derivative, where differences are not to serve.
    """

    further: Callable[[OpaqueDerivative], DerivativeRule] | None = None
    batch: Callable | None = None  # a loop
    saves = "x"

    def __init__(self, name: str, f: Callable, rule: DerivativeRule, outputs: int):
        self.name, self.f, self.rule, self.outputs = name, f, rule, outputs
        self.seen: dict[tuple, list[Aval]] = {}  # output types, which only a run can tell
        self.examples: dict[tuple, list] = {}  # outputs of a run, where they are to be kept
        self.derivatives: dict[tuple, OpaqueDerivative] = {}
        self.row = General(
            name, self.run, jvp=self.jvp, vjp=self.vjp, batch=self.batch, saves=self.saves,
            abstract=self.abstract, outputs=outputs, doc="A function that cannot be looked into.",
            example=self.example,
        )

    def run(self, *xs: Any, **options: Any) -> np.ndarray | tuple:
        xs = tuple(map(np.asarray, xs))
        ys = self.f(xs, options)
        self.seen[self._key(xs, options)] = [aval_of(y) for y in ys]
        return tuple(ys) if self.outputs > 1 else ys[0]

    def abstract(self, *xs: Aval, **options: Any) -> Aval | tuple[Aval, ...]:
        ys = self.out_avals(xs, options, None)
        return tuple(ys) if self.outputs > 1 else ys[0]

    def out_avals(self, avals: Sequence[Aval], options: dict, xs: Sequence | None) -> list[Aval]:
        """The types of the outputs; ``f`` is run for operand types that are new."""
        key = self._key(avals, options)
        if key not in self.seen:
            self.run(*(xs or [np.ones(a.shape, a.dtype) for a in avals]), **options)
        return self.seen[key]

    def remember(self, xs: Sequence, ys: Sequence) -> None:
        """The outputs ``ys`` are those of ``xs``: an example of the results for such operands."""
        key = self._key(xs, {})
        self.seen[key], self.examples[key] = list(map(aval_of, ys)), list(ys)

    def example(self, *xs: Any, **options: Any) -> Any:
        """A result for operands like ``xs``, which a program is written with: it may be ones."""
        ones = [np.broadcast_to(a.dtype.type(1), a.shape) for a in self.out_avals(xs, options, xs)]
        ys = self.examples.get(self._key(xs, options), ones)
        return tuple(ys) if self.outputs > 1 else ys[0]

    def _key(self, xs: Sequence, options: dict) -> tuple:
        return (*map(aval_of, xs), repr(options))

    def derivative(
        self, back: bool, changed: tuple[int, ...], out: tuple[int, ...]
    ) -> OpaqueDerivative:
        """The JVP (``back``: the VJP) between the operands ``changed`` and the outputs ``out``."""
        key = back, changed, out
        if key not in self.derivatives:
            self.derivatives[key] = OpaqueDerivative(self, back, changed, out)
        return self.derivatives[key]

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, **options: Any) -> Any:
        changed = tuple([i for i, t in enumerate(ts) if t is not None])
        ys = y if self.outputs > 1 else (y,)
        out = tuple([i for i, v in enumerate(ys) if is_inexact(v)])
        if not changed or not out:
            return None
        derivative = self.derivative(False, changed, out)
        tangents = _run(derivative, (*self.point(xs, ys), *[ts[i] for i in changed]), options)
        full = placed(tangents, out, [None] * len(ys))
        return tuple(full) if self.outputs > 1 else full[0]

    def vjp(self, ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool], **options: Any) -> list:
        cts = ct if self.outputs > 1 else (ct,)
        changed = tuple([i for i, c in enumerate(cts) if c is not None])
        out = tuple([i for i, x in enumerate(xs) if wanted[i] and is_inexact(x)])
        if not changed or not out:
            return [None] * len(xs)
        derivative = self.derivative(True, out, changed)
        point = self.point(xs, y if self.outputs > 1 else (y,))
        cotangents = _run(derivative, (*point, *[cts[i] for i in changed]), options)
        return placed(cotangents, out, [None] * len(xs))

    def point(self, xs: Sequence, ys: Sequence) -> Sequence:
        """What a derivative there reads, of operands and outputs."""
        return xs


def _run(derivative: OpaqueDerivative, operands: Sequence, options: dict) -> Sequence:
    outs = derivative.row(*operands, **options)
    return outs if derivative.outputs > 1 else (outs,)


class OpaqueDerivative(OpaqueOp):
    """The JVP of ``of``, or with ``back`` its VJP, of operands and then tangents or cotangents.

    In both, ``changed`` are the operands and ``out`` the outputs that take part.
    """

    def __init__(self, of: OpaqueOp, back: bool, changed: tuple[int, ...], out: tuple[int, ...]):
        self.of, self.back, self.changed, self.out = of, back, changed, out
        self.by_rows: OpaqueRows | None = None
        name = f"{'vjp' if back else 'jvp'} of {of.name}"
        outputs = len(changed if back else out)
        self.further = of.further
        rule = self.further(self) if self.further else differences(
            self.run_rule, order=of.rule.differenced + 1)
        super().__init__(name, self.run_rule, rule, outputs)

    def out_avals(self, avals: Sequence[Aval], options: dict, xs: Sequence | None) -> list[Aval]:
        """Those of the operands or outputs that it is a change of."""
        n = self.split(avals)
        if self.back:
            return [aval_of(avals[i]) for i in self.changed]
        types = self.of.out_avals(avals[:n], options, xs and xs[:n])
        return [types[i] for i in self.out]

    def run_rule(self, operands: Sequence, options: dict) -> list:
        return self._run_by(self.of.rule, operands, options, ())

    def run_rows(self, operands: Sequence, options: dict) -> list:
        """The same of many changes, along axis 0."""
        rule, rows = self.of.rule.rows, len(operands[-1])
        assert rule is not None, self.name
        return self._run_by(rule, operands, options, (rows,))

    def _run_by(self, rule: DerivativeRule, operands: Sequence, options: dict, rows: tuple
                ) -> list:
        sources, out = (self.out, self.changed) if self.back else (self.changed, self.out)
        n = len(operands) - len(sources)
        xs, changes = operands[:n], operands[n:]
        ys = self.of.out_avals([aval_of(x) for x in xs], options, xs)
        avals = [aval_of(x) for x in xs]
        full = placed(changes, sources, [None] * (len(ys) if self.back else n))
        derive = rule.vjp if self.back else rule.jvp
        results, types = derive(xs, full, options), avals if self.back else ys
        return [
            np.zeros(rows + types[i].shape, types[i].dtype)
            if results[i] is None else np.asarray(cast(results[i], types[i].dtype))
            for i in out
        ]

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], **options: Any) -> Any:
        """Rows at one point are one call, where the rule takes them."""
        n = self.split(xs)
        if self.of.rule.rows is None or not size or any(batched[:n]):
            return self.row.loop(size, xs, batched, **options)
        self.by_rows = self.by_rows or OpaqueRows(self)
        changes = [x if b else np.broadcast_to(x, (size, *np.shape(x)))
                   for x, b in zip(xs[n:], batched[n:], strict=True)]
        return self.by_rows.row(*xs[:n], *changes, **options)

    def split(self, operands: Sequence) -> int:
        """How many of the operands are those of the function, before tangents or cotangents."""
        return len(operands) - len(self.out if self.back else self.changed)

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, **options: Any) -> Any:
        n = self.split(xs)
        total = super().jvp([*ts[:n], *[None] * (len(ts) - n)], y, xs, **options)
        if all(t is None for t in ts[n:]):
            return total
        changes = [_or_zeros(t, x) for t, x in zip(ts[n:], xs[n:], strict=True)]
        linear = self.row(*xs[:n], *changes, **options)
        if total is None:
            return linear
        if self.outputs == 1:
            return total + linear
        return tuple(a + b for a, b in zip(total, linear, strict=True))

    def vjp(self, ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool], **options: Any) -> list:
        n = self.split(xs)
        point_cts = super().vjp(ct, y, xs, [*wanted[:n], *[False] * (len(xs) - n)], **options)
        if not any(wanted[n:]):
            return point_cts
        cts = ct if self.outputs > 1 else (ct,)
        types = self.of.out_avals([aval_of(x) for x in xs[:n]], options, None)
        like = [xs[i] for i in self.changed] if self.back else [types[i] for i in self.out]
        full = [_or_zeros(c, a) for c, a in zip(cts, like, strict=True)]
        other = self.of.derivative(not self.back, self.changed, self.out)
        return [*point_cts[:n], *_run(other, (*xs[:n], *full), options)]


class OpaqueRows(OpaqueOp):
    """The derivative ``one`` of many changes at one point, along axis 0 of each."""

    def __init__(self, one: OpaqueDerivative):
        self.one = one
        super().__init__(f"{one.name}, by rows", one.run_rows, one.rule, one.outputs)

    def out_avals(self, avals: Sequence[Aval], options: dict, xs: Sequence | None) -> list[Aval]:
        n, rows = self.one.split(avals), avals[-1].shape[0]
        changes = [Aval(a.shape[1:], a.dtype) for a in map(aval_of, avals[n:])]
        types = self.one.out_avals([*avals[:n], *changes], options, None)
        return [Aval((rows, *a.shape), a.dtype) for a in types]

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, **options: Any) -> Any:
        n = self.one.split(xs)
        moved = [i for i, t in enumerate(ts) if i >= n and t is not None]

        def row(y: Any, changes: Sequence, moves: Sequence) -> Any:
            full = placed(moves, moved, [*ts[:n], *[None] * len(changes)])
            return self.one.jvp(full, y, [*xs[:n], *changes], **options)

        return vmap(row)(y, list(xs[n:]), [ts[i] for i in moved])

    def vjp(self, ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool], **options: Any) -> list:
        n, places = self.one.split(xs), []
        cts = ct if self.outputs > 1 else (ct,)
        present = [i for i, c in enumerate(cts) if c is not None]

        def row(changes: Sequence, given: Sequence) -> list:
            full = placed(given, present, [None] * len(cts))
            found = self.one.vjp(tuple(full) if self.outputs > 1 else full[0], None,
                                 [*xs[:n], *changes], wanted, **options)
            places[:] = [i for i, x in enumerate(found) if x is not None]
            return [found[i] for i in places]

        found = vmap(row)(list(xs[n:]), [cts[i] for i in present])
        return placed([x.sum(axis=0) if i < n else x for i, x in zip(places, found, strict=True)],
                      places, [None] * len(xs))


def _or_zeros(t: Any, like: Any) -> AnyArray:
    a = aval_of(like)
    return np.zeros(a.shape, a.dtype) if t is None else t
