"""Fresh machine code, compared once with the interpretation of its program, or of a part of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Structured,
    Var,
    aval_of_atom,
    evaluate,
)
from functrans._compile.nest.equation import Nest
from functrans._compile.run.checksum import scatter
from functrans._core.array import PYTHON_SCALARS, Aval
from functrans._core.primitive import NanArrived, Primitive
from functrans._kernels.large import Examples
from functrans._ops.calls import checked
from functrans._ops.declare import Bilinear, Elementwise, Linear
from functrans._ops.structure import astype, astype_discrete, broadcast_to, reshape
from functrans.config import settings
from functrans.errors import MiscompilationWarning

# ---- A part of a large program: the same equations for some of the entries of its outputs
#
# What entry by entry computes an output of what entry by entry is given can be verified on a few
# thousand of a million entries: at the beginning, at the end, in between and scattered.

Shape = tuple[int, ...]
# Entries in a row at the beginning, in the middle and at the end, and scattered ones.
BLOCK = 128


class Part(NamedTuple):
    """A program for some entries, and values and outputs there."""

    program: Program
    values: list[Any]
    outputs: list[np.ndarray]


def part_of(program: Program, values: Sequence[Any], outputs: Sequence[np.ndarray]) -> Part | None:
    """The part of a program that can be taken so, None if there is none."""
    size = max([aval_of_atom(a).size for a in program.outputs], default=0)
    if size <= 4 * BLOCK:
        return None
    made = _Entries(program, size)
    wanted = [
        (i, a) for i, a in enumerate(program.outputs) if isinstance(a, Var) and made.is_taken(a)
    ]
    if not wanted:
        return None
    given = [made.entries(values[i], shape) for (i, shape) in made.given]
    inputs = [*made.given.values(), *[program.inputs[i] for i in made.kept]]
    own = tuple([made.of[a, a.aval.shape] for _, a in wanted])
    return Part(
        Program(tuple(inputs), tuple(made.eqns), own),
        [*given, *[values[i] for i in made.kept]],
        [made.entries(outputs[i], a.aval.shape) for i, a in wanted],
    )


class _Entries:
    """Equations for some entries of arrays of one size, as far as the program is of such.

    Of a variable they are those of an array of a shape of that size, to which it is repeated:
    ``of`` has a variable for each such pair. ``given`` are inputs of which entries are taken,
    ``kept`` those that are one number, by their places.
    """

    def __init__(self, program: Program, size: int):
        first = np.arange(BLOCK)
        scattered = first * 2654435761 % size
        self.flat = np.concatenate([first, size // 2 - 1 + first, size - 1 - first, scattered])
        self.size = size
        self.of: dict[tuple[Var, Shape], Atom] = {}
        self.given: dict[tuple[int, Shape], Var] = {}
        self.kept: list[int] = []
        self.eqns: list[Eqn] = []
        wanted = self.wanted(program)
        for i, v in enumerate(program.inputs):
            self.kept += [i] * (v.aval.shape == ())
            for shape in wanted.get(v, ()):
                if v.aval.shape == ():
                    self.of[v, shape] = v
                elif _fits(v.aval.shape, shape):
                    self.of[v, shape] = self.given[i, shape] = self.some(v)
        for eqn in program.eqns:
            for shape in wanted.get(eqn.outputs[0], ()):
                self.enter(eqn, shape)

    def wanted(self, program: Program) -> dict[Var, dict[Shape, None]]:
        """The shapes for which a variable is needed."""
        shapes: dict[Var, dict[Shape, None]] = {}
        for a in program.outputs:
            if isinstance(a, Var) and a.aval.size == self.size:
                shapes.setdefault(a, {})[a.aval.shape] = None
        for eqn in reversed(program.eqns):
            for shape in shapes.get(eqn.outputs[0], ()):
                before = self.before(eqn, shape)
                for a in eqn.inputs:
                    if isinstance(a, Var) and before is not None:
                        shapes.setdefault(a, {})[before] = None
        return shapes

    def entries(self, x: Any, shape: Shape) -> np.ndarray:
        """Those of an array that is repeated to a shape, or has as many entries."""
        whole = np.broadcast_to(np.asarray(x), shape)
        return whole[np.unravel_index(self.flat, shape)]

    def some(self, v: Var) -> Var:
        return Var(Aval((4 * BLOCK,), v.aval.dtype))

    def is_taken(self, a: Var) -> bool:
        """Whether there are the entries of an output."""
        own = self.of.get((a, a.aval.shape))
        return isinstance(own, Var) and own.aval.shape == (4 * BLOCK,)

    def taken(self, a: Atom, shape: Shape) -> Atom | None:
        """What has the entries of an operand, None if nothing has."""
        if isinstance(a, Var):
            return self.of.get((a, shape))
        if isinstance(a, Const) and a.aval.shape != ():
            return Const(self.entries(a.value, shape)) if _fits(a.aval.shape, shape) else None
        return a

    def before(self, eqn: Eqn, shape: Shape) -> Shape | None:
        """The shape for which operands are needed, if a result is for one; None where entries are
        not computed of entries.
        """
        out = eqn.outputs[0].aval
        if eqn.prim is reshape:  # in the same order
            return aval_of_atom(eqn.inputs[0]).shape if out.size == self.size else None
        by_entry = isinstance(eqn.prim, Elementwise) and len(eqn.outputs) == 1
        by_entry = by_entry or eqn.prim in (broadcast_to, checked)
        return shape if by_entry and _fits(out.shape, shape) else None

    def enter(self, eqn: Eqn, shape: Shape) -> None:
        """Add an equation if it computes entries of entries."""
        before = self.before(eqn, shape)
        taken = [] if before is None else [self.taken(a, before) for a in eqn.inputs]
        inputs = tuple([a for a in taken if a is not None])
        if not inputs or len(inputs) < len(taken):
            return
        out = eqn.outputs[0]
        if not isinstance(eqn.prim, Elementwise):
            self.of[out, shape] = inputs[0]
            return
        one = all([aval_of_atom(a).shape == () for a in inputs])
        made = Var(out.aval, out.weak) if one else self.some(out)
        self.of[out, shape] = made
        self.eqns.append(Eqn(eqn.prim, inputs, eqn.params, (made,), eqn.line))


def _fits(shape: Shape, whole: Shape) -> bool:
    """Whether an array of one shape is repeated to another."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all([n in (1, m) for n, m in pairs])


# ---- Fresh machine code, compared once with the interpretation of its program
#
# Compilers make mistakes, rarely and silently. So the outputs of a first call are computed a second
# time, by NumPy, equation by equation. If they differ by more than a few roundings, the program is
# run again with every rounding disturbed at random, by more than any correct code is off.
# Differences a thousand times larger than the effect of that are errors.
#
# Doubtful cases pass: values that are not finite, or that a disturbance moves across a branch;
# functions from outside, which must not be called twice; long loops, which would take too long. Of
# large arrays some entries are verified where each is computed of such (``verify.py``), and
# middling ones roughly; that no memory is used again too early is verified for all sizes before
# there is code (``schedule/memory.py``).

# Entries of all intermediates together, and equations run in loops, up to which code is verified.
MOST_ENTRIES, MOST_STEPS = 1 << 15, 500
# Entries up to which large programs are run, too: only what is off by more than this part of the
# largest entry is then looked at further. A product of matrices counts as its operations by 16.
ROUGHLY, ROUGH = 1 << 18, 1e-4
# Differences that always pass, in roundings of the output.
CLOSE = 1000.0
# Size of a disturbance, in roundings: vector functions are within 4, fused products within 1.
NOISE = 8.0
# Disturbed runs; more of them, with larger disturbances, before anything is called wrong.
RUNS, DOUBTS = 3, (8.0, 8.0, 64.0, 64.0, 512.0, 4096.0, 4096.0)
# How many times further off than in disturbed runs an entry may be.
FAR = 1000.0


class _Undecided(Exception):
    """The interpretation says nothing about the code."""


def difference(
    program: Program, values: Sequence[Any], outputs: Sequence[np.ndarray]
) -> str | None:
    """How outputs of compiled code are wrong; None if they are right or it cannot be told."""
    if not settings().verify:
        return None
    try:
        with np.errstate(all="ignore"), Examples():
            return _difference(program, values, outputs)
    except (_Undecided, NanArrived, ArithmeticError, LookupError, ValueError):
        return None  # NumPy raises where the code does not


def _difference(program: Program, values: Sequence, outputs: Sequence[np.ndarray]) -> str | None:
    entries = _entries(program)
    if entries <= MOST_ENTRIES:
        return _compare(program, values, outputs, MOST_ENTRIES, _is_close)
    part = part_of(program, values, outputs)
    if part is not None and _entries(part.program) <= MOST_ENTRIES:
        wrong = _compare(*part, MOST_ENTRIES, _is_close)
        if wrong is not None:
            return wrong
    if entries > ROUGHLY:
        return None
    return _compare(program, values, outputs, ROUGHLY, _is_roughly)


def _compare(
    program: Program,
    values: Sequence,
    outputs: Sequence[np.ndarray],
    most: int,
    close: Callable[[np.ndarray, np.ndarray], bool],
) -> str | None:
    pairs = list(zip(outputs, map(np.asarray, _Run(most)(program, values)), strict=True))
    open_ = [i for i, pair in enumerate(pairs) if not close(*pair)]
    random, runs, moved = _Noise(), [], []
    for noises in ((NOISE,) * RUNS, DOUBTS):
        if open_:
            more = [_Run(most, random, noise) for noise in noises]
            moved += [list(map(np.asarray, run(program, values))) for run in more]
            runs += more
            calm = all(run.calm for run in runs)
            open_ = [i for i in open_ if not _explains(*pairs[i], [ys[i] for ys in moved], calm)]
    return f"output {open_[0]} {_error(*pairs[open_[0]])}" if open_ else None


def _entries(program: Program) -> float:
    """About how many entries an interpretation computes; it raises if that calls what must not be
    called twice.
    """
    entries = 0.0
    for eqn in program.eqns:
        own = float(sum([v.aval.size for v in eqn.outputs]))
        if isinstance(eqn.prim, Nest) and eqn.prim.open_stacks:
            raise _Undecided
        if isinstance(eqn.prim, Structured):
            own += sum(map(_entries, eqn.prim.programs.values()))
        elif not (eqn.prim.ours and eqn.prim.facts.unique):
            raise _Undecided
        elif isinstance(eqn.prim, Bilinear):  # as many products as meet
            sizes = [aval_of_atom(a).size for a in eqn.inputs]
            own += math.sqrt(float(math.prod(sizes)) * own) / 16
        elif not isinstance(eqn.prim, Elementwise | Linear):
            own += max([aval_of_atom(a).size for a in eqn.inputs], default=0) ** 1.5 / 4
        entries += own
    return entries


class _Noise:
    """Pseudo-random numbers. The first use of ``np.random`` imports it, for which a child that is
    forked meanwhile would wait for ever."""

    def __init__(self) -> None:
        self.count = 0

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        size = math.prod(shape)
        words = scatter(self.count, size)
        self.count += size
        return low + (high - low) * words.astype(float).reshape(shape) / 2.0**64


class _Run:
    """An interpretation; with ``random`` numbers every rounding is disturbed.

    ``calm``: nothing in it was infinite, NaN, or near to overflow.
    """

    def __init__(self, most: float, random: _Noise | None = None, noise: float = 0.0):
        self.most = most
        self.random, self.noise, self.calm = random, noise, True
        self.steps = self.entries = 0  # in loops and branches

    def __call__(self, program: Program, values: Sequence[Any]) -> list:
        return evaluate(program, values, self.apply)

    def body(self, program: Program, values: Sequence[Any]) -> list:
        """A step of a loop, or a branch."""
        self.steps += len(program.eqns)
        self.entries += sum(v.aval.size for eqn in program.eqns for v in eqn.outputs)
        if self.steps > MOST_STEPS or self.entries > self.most:
            raise _Undecided
        return self(program, values)

    def apply(self, prim: Primitive, xs: Sequence[Any], params: dict[str, Any]) -> Any:
        if isinstance(prim, Structured):
            return prim.run(*xs, run=self.body)
        if self.random is None:
            return prim.impl(*xs, **params)
        rounds = prim.facts.rounds != "never"
        # as if it added in another order; and near its zeros, a special function is only as good as
        # that of numbers near by
        if rounds and (not isinstance(prim, Elementwise) or prim.facts.cython):
            xs = list(map(self.disturbed, xs))
        y = prim.impl(*xs, **params)
        ys = y if prim.outputs > 1 else (y,)
        if prim in (astype, astype_discrete):
            _require_range(xs[0], np.asarray(ys[0]).dtype)
        self.calm = self.calm and all(map(_is_calm, ys))
        if not rounds:
            return y
        return tuple(map(self.disturbed, y)) if prim.outputs > 1 else self.disturbed(y)

    def disturbed(self, x: Any) -> np.ndarray:
        """A number or numbers, moved by some roundings."""
        y = np.asarray(x)
        if y.dtype.kind not in "fc":
            return x
        assert self.random is not None
        by = self.random.uniform(-self.noise, self.noise, y.shape)
        if y.dtype.kind == "c":
            by = by + 1j * self.random.uniform(-self.noise, self.noise, y.shape)
        y = y + y * (by * np.finfo(y.dtype).eps).astype(y.dtype)
        return y.item() if type(x) in PYTHON_SCALARS else y if isinstance(x, np.ndarray) else y[()]


def _is_calm(y: Any) -> bool:
    y = np.asarray(y)
    if y.dtype.kind not in "fc":
        return True
    return bool(np.all(np.abs(y) < np.sqrt(np.finfo(y.dtype).max)))


def _require_range(x: Any, to: np.dtype) -> None:
    """Raise if a float does not fit the integers: then any result is right."""
    if to.kind in "iu" and np.asarray(x).dtype.kind == "f":
        limit = 2.0 ** (8 * to.itemsize - (to.kind == "i"))
        if not np.all(np.abs(x) < limit) or (to.kind == "u" and np.any(np.asarray(x) <= -1)):
            raise _Undecided


def _is_close(y: np.ndarray, e: np.ndarray) -> bool:
    """Whether an output is within some roundings of what was expected, as most are."""
    if y.dtype.kind not in "fc":
        return bool(np.array_equal(y, e))
    off = np.abs(y - e) <= CLOSE * np.finfo(y.dtype).eps * np.abs(e)
    return bool(np.all(off | (y == e) | (np.isnan(y) & np.isnan(e))))


def _is_roughly(y: np.ndarray, e: np.ndarray) -> bool:
    """Whether no entry is off by more than a small part of the largest one."""
    if y.dtype.kind not in "fc":
        return bool(np.array_equal(y, e))
    known = np.isfinite(e) & np.isfinite(y)
    if not known.all() and not np.array_equal(np.isfinite(e), np.isfinite(y)):
        return False
    largest = float(np.max(np.abs(e), initial=0.0, where=known))
    return bool(np.all(np.abs(y - e)[known] <= ROUGH * largest))


def _explains(y: np.ndarray, e: np.ndarray, moved: Sequence[np.ndarray], calm: bool) -> bool:
    """Whether disturbed runs move an output enough to explain the difference."""
    most = np.max([np.abs(_wide(m) - _wide(e)) for m in moved], axis=0, initial=0.0)
    decided = np.isfinite(e) & np.isfinite(most)
    if not calm:
        decided &= np.isfinite(y)
    if not decided.any():
        return True
    tolerance = FAR * most
    if y.dtype.kind in "fc":
        about = np.finfo(y.dtype)
        tolerance = tolerance + CLOSE * (about.eps * np.abs(e) + about.tiny)
    return not np.any(decided & ~(np.abs(_wide(y) - _wide(e)) <= tolerance))


def _wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "fc" else x.astype(float)


def _error(y: np.ndarray, e: np.ndarray) -> str:
    """How far off an output is, in words."""
    known = np.isfinite(e)
    off, size = np.max(np.abs(_wide(y) - _wide(e))[known]), np.max(np.abs(_wide(e))[known])
    if not np.isfinite(off):
        return "is not finite where it should be"
    return f"is off by {off:.2g}, where its largest entry is {size:.2g}"


def warn_of_miscompilation(title: str, wrong: str, cured: bool) -> None:
    """Say that code was wrong, and what is run instead."""
    now = (
        "It was compiled again without vectorising loops, which gives the right values."
        if cured
        else "So it is without that; NumPy runs the program."
    )
    text = f"jit: machine code made of the program {title} computes something else: {wrong}. {now}"
    warnings.warn(text, MiscompilationWarning, stacklevel=7)
