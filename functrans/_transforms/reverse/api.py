"""What a tape gives its user: pullbacks, pushforwards and transposes that outlive it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from functrans import tree
from functrans._core.array import PYTHON_SCALARS, aval_of, plain
from functrans._core.bind import Tracer, cast, is_staged, layers
from functrans._ops.calls import Call, arrive
from functrans._transforms.arguments import (
    Leaves,
    check_like,
    hand_out_all,
    hand_out_tree,
    is_number,
    open_all,
    open_argument,
    require_callable,
    require_numbers,
    wrong_structure,
    zeros_like,
)
from functrans._transforms.derived import OfRun, surfacing
from functrans._transforms.reverse.grad import lower_all, split_aux
from functrans._transforms.reverse.nodes import ReverseTrace
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import Node, VJPTrace, pull_back
from functrans._transforms.watching.kinks import vjp_trace
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    NotDifferentiable,
    UnsupportedError,
    name_of,
)

# ---- What a tape that outlives its transform reads when it is walked, beside cotangents
#
# A pullback under ``jit`` is a function that closes over a tape: its program depends on this.


def held_by_tape(trace: VJPTrace) -> tuple:
    """The arrays that others may change, traced values, and functions that are run again."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    todo: list[Any] = [trace]
    while todo:
        x = todo.pop()
        if isinstance(x, VJPTrace) and x.captures is not None:
            found |= {i: watched[0] for i, watched in x.captures.watched.items()}
        if isinstance(x, Tracer | FunctionType):
            found[id(x)] = x
        elif id(x) not in seen:
            seen.add(id(x))
            todo += _parts(x)
    return tuple(found.values())


def _parts(x: Any) -> Iterable[Any]:
    if isinstance(x, VJPTrace):
        edges = [edge[2] for node in x.tape if type(node) is tuple for edge in node]
        return *edges, *[node for node in x.tape if type(node) is not tuple]
    if type(x) is tuple or type(x) is list:
        return x
    if type(x) is dict:
        return x.values()
    if isinstance(x, Call):
        return x.fun, *getattr(x, "functions", ())
    if hasattr(type(x), "pull_into"):  # an entry of the tape
        slots = [name for k in type(x).__mro__ for name in vars(k).get("__slots__", ())]
        return [getattr(x, name) for name in slots]
    return ()


# ---- A tape walked forward: tangents from its inputs to its end


def push_forward(
    trace: VJPTrace, outs: Sequence, inputs: Sequence[VJPTracer], tangents: Sequence
) -> list:
    """Tangents of ``outs`` from those of ``inputs``, walking the tape forward."""
    ts: list[Any] = [None] * len(trace.tape)
    for x, t in zip(inputs, tangents, strict=True):
        ts[x.slot] = t
    trace.advance(ts)
    return [ts[x.slot] if type(x) is VJPTracer and x.owner is trace else None for x in outs]


# ---- What a tape gives its user: pullbacks, pushforwards and transposes that outlive the call


class Recording:
    """One run of a function on a tape: ``ends`` are its outputs' places there, without values."""

    __slots__ = ("_held", "aux", "ends", "inputs", "opened", "structure", "trace", "values")

    def __init__(self, trace: ReverseTrace, opened: list[Leaves | None], inputs: list, ends: list,
                 values: list, structure: tree.Structure, aux: Any):
        self.trace, self.opened, self.inputs, self.ends = trace, opened, inputs, ends
        self.values, self.structure, self.aux = values, structure, aux
        self._held: tuple | None = None

    def held(self) -> tuple:
        """What a call reads beside what it is given (``api.py``)."""
        if self._held is None:
            self._held = held_by_tape(self.trace)
        return self._held

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(f"{self.trace.fun}: what one run has recorded does not pickle")

    @property
    def output(self) -> Any:
        ys = hand_out_all(self.values, references=lambda y: _references(self.trace.tape, y))
        return tree.unflatten(self.structure, ys)

    def pull(self, seeds: Sequence) -> list:
        """Cotangents of the inputs, without conjugation, zeros where there is no path."""
        self._require_numbers(seeds)
        seeds = [
            s if s is None else self.trace.entered(cast(s, aval_of(v).dtype))
            for s, v in zip(seeds, self.values, strict=True)
        ]
        with self.trace.growing or nullcontext():
            cts = pull_back(self.trace, self.ends, seeds, self.inputs, consume=False,
                            staged=any(map(is_staged, self.values)))
        return [
            zeros_like(x) if c is None else cast(self.trace.settled(c), x.dtype)
            for c, x in zip(cts, self.inputs, strict=True)
        ]

    def push(self, tangents: Sequence) -> list:
        """Tangents of the outputs, zeros where there is no path."""
        self._require_numbers(tangents)
        self.trace.check_captures()
        with self.trace.growing or nullcontext():
            entered = list(map(self.trace.entered, tangents))
            ts = push_forward(self.trace, self.ends, self.inputs, entered)
        y_ts = arrive([
            zeros_like(v) if t is None else self.trace.settled(t)
            for t, v in zip(ts, self.values, strict=True)
        ])
        if self.trace.split and any(map(has_nan, y_ts)):
            raise NotDifferentiable(
                f"{self.trace.fun}: eigenvalues or singular values coincide, and the basis that "
                "fits this tangent differs from the one of the run that was linearized. Use jvp or "
                "jacfwd, which take that basis, or vjp or jacrev."
            )
        return y_ts

    def _require_numbers(self, given: Sequence) -> None:
        """Raise where a program is written that would take the ratios of slopes of values that
        coincide: which ones do is known of the run that was recorded, and of that alone."""
        if self.trace.hidden and any(map(self._is_of_a_program, given)):
            raise ConcretizationError(
                f"{self.trace.fun}: eigenvalues or singular values coincided in the run that was "
                "recorded, and its derivative is not compiled. Call it outside of loops and "
                "branches, or take vjp or jvp inside of what is compiled."
            )

    def _is_of_a_program(self, x: Any) -> bool:
        """Whether ``x`` is traced for a program that is written since the run was recorded."""
        return any([isinstance(v, Tracer) and v.staged and v.owner.level > self.trace.level
                    for v in layers(x)])


def _references(tape: list, y: Any) -> int:
    """How many references to ``y`` a tape holds, which only reads it."""
    saved = [v for node in tape if type(node) is tuple for edge in node for v in edge[2]]
    saved += [node.y for node in tape if type(node) is Node]
    return sum([v is y for v in saved])


def has_nan(t: Any) -> bool:
    """Whether it is known to hold a NaN."""
    return isinstance(t, np.ndarray | np.generic) and bool(np.isnan(t).any())


def record(
    who: str,
    f: Callable,
    primals: Sequence,
    has_aux: bool,
    call: Callable | None = None,
    needed: bool = False,
) -> Recording:
    """Run ``f`` on ``primals`` onto a tape that is kept; ``call`` places them among others.

    ``needed``: each primal must hold something to differentiate, not just one of them.
    """
    f = require_callable(who, f)
    opened: list[Leaves | None] = (
        [open_argument(who, f, i, x) for i, x in enumerate(primals)]
        if needed
        else open_all(who, f, primals)
    )
    trace = vjp_trace(f"{who}({name_of(f)})", outlives=True)
    try:
        inputs = [trace.arguments(a.primals) if a else [] for a in opened]
        args = [a.rebuild(v) if a else x for a, v, x in zip(opened, inputs, primals, strict=True)]
        out = (call or (lambda xs: f(*xs)))(args)
        out, aux = split_aux(who, f, out) if has_aux else (out, None)
        outs, structure = tree.flatten(out)
        require_numbers(f"{who}: `{name_of(f)}`", outs)
        trace.hand_out(outs)
        aux = hand_out_tree(lower_all(trace, aux)) if has_aux else None
        values = [trace.settled(trace.lower(x)) for x in outs]
        ends = [
            VJPTracer(trace, None, x.slot) if type(x) is VJPTracer and x.owner is trace else None
            for x in outs
        ]
        flat = [v for vs in inputs for v in vs]
        return Recording(trace, opened, flat, ends, values, structure, aux)
    finally:
        trace.closed = True


@surfacing
def vjp(f: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """The value of ``f`` and its pullback, ``v -> v^H J``.

    ``pullback(ct)`` takes a cotangent with the structure and shapes of the output and returns a
    tuple, one entry a primal; it may be called many times. If a primal or a captured array that it
    reads has been changed by then, it raises CaptureError.

    Returns ``(out, pullback)``, or ``(out, pullback, aux)`` with ``has_aux``.

    >>> import functrans as ft, numpy as np
    >>> y, pullback = ft.vjp(np.multiply, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> pullback(np.array([1.0, 10.0]))
    (Array([ 3., 40.]), Array([ 1., 20.]))
    """
    run = record("vjp", f, primals, has_aux)

    def pullback(ct: Any) -> tuple:
        check_like("pullback", f, "the cotangent", ct, tree.unflatten(run.structure, run.values))
        cts = run.pull([_copy(conjugate(c)) for c in map(plain, tree.leaves(ct))])
        for i, c in enumerate(cts):
            cts[i] = conjugate(c)
            del c
        leaves = iter(hand_out_all(cts))
        return tuple(a.only([next(leaves) for _ in a.active]) if a else None for a in run.opened)

    pull = OfRun(surfacing(pullback), name_of(f))
    return (run.output, pull, run.aux) if has_aux else (run.output, pull)


def conjugate(x):
    return np.conjugate(x) if aval_of(x).dtype.kind == "c" else x


def _copy(ct):
    """A seed may come out again as the result, which must not change with the caller's array."""
    return ct if isinstance(ct, Tracer) else np.array(ct)


@surfacing
def linearize(f: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """The value of ``f`` and its derivative as a function, ``t -> J t``.

    ``f`` runs once; ``pushforward(*tangents)`` takes one tangent a primal and costs no more than
    the linear part of ``f``.

    Returns ``(out, pushforward)``, or ``(out, pushforward, aux)`` with ``has_aux``.

    >>> import functrans as ft, numpy as np
    >>> y, push = ft.linearize(np.sin, 0.0)
    >>> push(2.0)
    Array(2.)
    """
    run = record("linearize", f, primals, has_aux)

    def pushforward(*tangents: Any) -> Any:
        if len(tangents) != len(primals):
            raise ArgumentError(
                f"pushforward of `{name_of(f)}` takes {len(primals)} tangents, but got "
                f"{len(tangents)}"
            )
        flat = active_tangents("pushforward", f, run.opened, primals, tangents)
        flat = [_copy(t) for t in flat]
        return tree.unflatten(run.structure, hand_out_all(run.push(flat)))

    push = OfRun(surfacing(pushforward), name_of(f))
    return (run.output, push, run.aux) if has_aux else (run.output, push)


def active_tangents(
    who: str, f: Callable, opened: Sequence[Leaves | None], primals: Sequence, tangents: Sequence
) -> list:
    """The tangents of the leaves that carry one, in their dtype."""
    flat = []
    for i, (a, x, t) in enumerate(zip(opened, primals, tangents, strict=True)):
        if a is None:
            continue
        if type(t) is type(x) is np.ndarray and t.shape == x.shape and t.dtype is x.dtype:
            flat.append(t)  # as a rule; what differs is looked at leaf by leaf
            continue
        try:
            leaves = tree.matching(a.structure, t, i)
        except ArgumentError:
            raise wrong_structure(who, f, f"tangent {i}", t, x) from None
        for j in a.active:
            check_like(who, f, f"tangent {i}", leaves[j], a.leaves[j])
            dtype = aval_of(a.leaves[j]).dtype
            given = cast(plain(leaves[j]), dtype)
            # with Python's own numbers rules would raise where they divide by zero
            flat.append(dtype.type(given) if type(given) in PYTHON_SCALARS else given)
    return flat


@surfacing
def linear_transpose(f: Callable, *primals: Any) -> Callable:
    """The transpose of a linear function: for ``f(x) = A x``, ``ct -> A^T ct``.

    ``primals`` give shapes and dtypes, and the point at which linearity is checked. No conjugation.

    Raises ArgumentError where ``f`` is not linear.

    >>> import functrans as ft, numpy as np
    >>> ft.linear_transpose(np.cumsum, np.ones(3))(np.array([1.0, 0.0, 2.0]))
    (Array([3., 2., 2.]),)
    """
    zeros = tree.map(lambda x: zeros_like(x) if _is_float(x) else x, primals)
    run = record("linear_transpose", f, zeros, False)
    point = [
        x
        for a, p in zip(run.opened, primals, strict=True)
        if a
        for x in [tree.leaves(p)[i] for i in a.active]
    ]
    there = record("linear_transpose", f, primals, False).values
    for y, y0, t in zip(there, run.values, run.push(point), strict=True):
        if any(isinstance(v, Tracer) for v in (y, y0, t)):
            continue  # nothing to compare while an outer transform traces
        if not (
            np.all(np.equal(y0, 0)) and np.allclose(y, t, rtol=1e-5, atol=1e-6, equal_nan=True)
        ):
            raise ArgumentError(f"linear_transpose: `{name_of(f)}` is not linear in its arguments")

    def transposed(ct: Any) -> tuple:
        check_like(
            "linear_transpose", f, "the cotangent", ct, tree.unflatten(run.structure, run.values)
        )
        leaves = iter(hand_out_all(run.pull([_copy(c) for c in tree.leaves(ct)])))
        return tuple(a.only([next(leaves) for _ in a.active]) if a else None for a in run.opened)

    return OfRun(surfacing(transposed), name_of(f))


def _is_float(x) -> bool:
    return is_number(x) and aval_of(x).dtype.kind in "fc"
