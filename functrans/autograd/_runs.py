"""One run of a function on a tape or on dual numbers, with autograd's conventions.

Arguments and results are plain: numbers of Python's and NumPy's, ndarrays that can be written to,
and lists, tuples and dicts of them. Cotangents are transposed without conjugation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import Array, aval_of, plain, shape_of
from functrans._core.bind import Tracer, cast, is_staged
from functrans._transforms.arguments import is_alone
from functrans._transforms.forward.jvp import JVPTrace, fit, mine
from functrans._transforms.reverse.nodes import ReverseTrace
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import pull_back
from functrans._transforms.watching.kinks import jvp_trace, vjp_trace

INDEPENDENT = "Output seems independent of input."
# Numbers that autograd differentiates by; integers are counts.
_NUMBERS = (float, complex, np.inexact, Tracer)


def open_leaves(x: Any) -> tuple[list, tree.Structure]:
    """What is differentiated by in an argument, and how it nests."""
    kind = type(x)
    if kind is float or kind is np.float64 or (kind is np.ndarray and x.dtype.kind in "fc"):
        return [x], tree.LEAF
    leaves, structure = tree.flatten(x)
    return [_leaf(v) for v in leaves], structure


def _leaf(x: Any) -> Any:
    if isinstance(x, _NUMBERS):
        return x
    if isinstance(x, np.ndarray) and x.dtype.kind in "fciub":
        return plain(x) if x.dtype.kind in "fc" else x.astype(float)
    raise TypeError(
        f"Can't differentiate w.r.t. type {type(x)}: pass a float or an array, or leave it out of "
        "argnum"
    )


def as_plain(xs: list) -> list:
    """Results, in place: numbers as NumPy's, arrays that nobody else refers to."""
    for i in range(len(xs)):
        if isinstance(xs[i], np.ndarray):
            if xs[i].ndim == 0:
                xs[i] = xs[i][()]
            elif type(xs[i]) is Array or not xs[i].flags.writeable or not is_alone(xs, i):
                xs[i] = np.array(xs[i])
        elif type(xs[i]) is float:
            xs[i] = np.float64(xs[i])
    return xs


def as_plain_tree(x: Any) -> Any:
    """The same of a container."""
    if isinstance(x, Tracer):
        return x
    leaves, structure = tree.flatten(x)
    del x
    return tree.unflatten(structure, as_plain(leaves))


class Run:
    """One run of ``fun`` on a tape: what came out, and the way back."""

    __slots__ = ("depends", "inputs", "nesting", "out_nesting", "outs", "trace")

    def __init__(self, fun: Callable, x: Any, again: bool):
        leaves, self.nesting = open_leaves(x)
        self.trace: ReverseTrace = vjp_trace(f"grad({getattr(fun, '__name__', 'f')})", again)
        try:
            self.inputs = self.trace.arguments(leaves)
            single = self.nesting is tree.LEAF
            out = fun(self.inputs[0] if single else tree.unflatten(self.nesting, self.inputs))
        finally:
            self.trace.closed = True
        self.outs, self.out_nesting = [out], tree.LEAF
        self.depends = self._owns(out)
        if not self.depends:
            self.outs, self.out_nesting = tree.flatten(out)
            self.depends = any([self._owns(y) for y in self.outs])
            if not self.depends:
                warnings.warn(INDEPENDENT, stacklevel=3)
        self.trace.hand_out(self.outs)

    def _owns(self, y: Any) -> bool:
        return type(y) is VJPTracer and y.owner is self.trace

    def lowered(self) -> list:
        """The leaves of the output, as this run's caller has them."""
        return [self.trace.settled(self.trace.lower(y)) for y in self.outs]

    @property
    def value(self) -> Any:
        """The output, plain."""
        return tree.unflatten(self.out_nesting, as_plain([
            np.array(y) if isinstance(y, np.ndarray) else y for y in self.lowered()]))

    def pull(self, g: Any, consume: bool = False) -> Any:
        """The cotangent of the argument from that of the output."""
        values = self.lowered()
        seeds = [self._seed(g, values[0])] if self.out_nesting is tree.LEAF else [
            self._seed(s, y) for s, y in zip(
                tree.matching(self.out_nesting, g, 0), values, strict=True)]
        cts = pull_back(self.trace, self.outs, seeds, self.inputs, consume=consume,
                        staged=any(map(is_staged, values)))
        for i, x in enumerate(self.inputs):
            aval = x.known or x.aval
            if cts[i] is None:
                cts[i] = np.zeros(*aval)
            elif self.trace.hidden or getattr(cts[i], "dtype", None) is not aval[1]:
                cts[i] = cast(self.trace.settled(cts[i]), aval[1])
        as_plain(cts)
        return cts[0] if self.nesting is tree.LEAF else tree.unflatten(self.nesting, cts)

    def _seed(self, g: Any, y: Any) -> Any:
        if type(g) is type(y) is np.float64:
            return g
        if g is None or not self.depends:
            return None
        shape, dtype = aval_of(y)
        if aval_of(g).dtype.kind == "c" and dtype.kind != "c":
            raise TypeError("a vjp got a complex cotangent of a real output")
        if shape_of(g) != shape:
            g = np.broadcast_to(g, shape)
        return self.trace.entered(cast(plain(g), dtype))


def push(fun: Callable, x: Any, v: Any) -> tuple[Any, Any]:
    """The value of ``fun`` and its derivative along ``v``."""
    leaves, nesting = open_leaves(x)
    given = tree.matching(nesting, v, 1)
    trace: JVPTrace = jvp_trace(f"jvp({getattr(fun, '__name__', 'f')})")
    try:
        duals = [trace.input(p, _tangent(t, p)) for p, t in zip(leaves, given, strict=True)]
        outs, out_nesting = tree.flatten(fun(tree.unflatten(nesting, duals)))
    finally:
        trace.closed = True
    if not any([mine(trace, y) for y in outs]):
        warnings.warn(INDEPENDENT, stacklevel=3)
    values = [np.array(y) if isinstance(y, np.ndarray) else y for y in map(trace.lower, outs)]
    tangents = [fit(y.tangent, y.primal) if mine(trace, y) else np.zeros(*aval_of(y)) for y in outs]
    return (tree.unflatten(out_nesting, as_plain(values)),
            tree.unflatten(out_nesting, as_plain(tangents)))


def _tangent(t: Any, x: Any) -> Any:
    shape, dtype = aval_of(x)
    if aval_of(t).dtype.kind == "c" and dtype.kind != "c":
        raise TypeError("a jvp got a complex tangent of a real argument")
    t = plain(t) if shape_of(t) == shape else np.broadcast_to(t, shape)
    t = cast(t, dtype)
    return t if isinstance(t, Tracer | np.ndarray) else dtype.type(t)


def is_traced_in(x: Any) -> bool:
    """Whether ``x`` is a traced value or a container with one in it."""
    if isinstance(x, Tracer):
        return True
    return isinstance(x, _CONTAINERS) and any([isinstance(v, Tracer) for v in tree.leaves(x)])


_CONTAINERS = (list, tuple, dict)


def getval(x: Any) -> Any:
    """The plain value inside of a traced one; of a container, of all in it."""
    while isinstance(x, Tracer):
        x = x.current()
        if x.inner is None:
            raise TypeError(f"getval: {x!r} has no value of its own under jit or vmap")
        x = x.inner
    return tree.map(getval, x) if isinstance(x, _CONTAINERS) and is_traced_in(x) else x


def zeros_where_none(cts: Sequence, avals: Sequence) -> list:
    """Cotangents of outputs as a rule takes them."""
    return [np.zeros(*a)[()] if c is None else c for c, a in zip(cts, avals, strict=True)]
