"""The diagonal of a Hessian, and its sum, without the matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from functrans import tree
from functrans._core.array import aval_of, dtype_of, shape_of
from functrans._core.bind import AnyArray, Tracer, is_finite, is_staged
from functrans._transforms.arguments import (
    Leaves,
    Selected,
    hand_out_all,
    labels,
    open_argument,
    plain_argnums,
    require_callable,
    select,
)
from functrans._transforms.derived import deriving
from functrans._transforms.forward.api import JVPResult, run_jvp
from functrans._transforms.matrices.batches import Batches, many
from functrans._transforms.matrices.directions import (
    Compressed,
    Directions,
    Rows,
    compressed_on_diagonal,
    directions,
)
from functrans._transforms.matrices.jacobian import hessian
from functrans._transforms.matrices.laplacian import Unfollowed, batch_of, run_laplacian, summed
from functrans._transforms.matrices.matrix import Route
from functrans._transforms.reach import of_one_draw
from functrans.errors import ArgumentError, FunctransError, NotDifferentiable, name_of

P = ParamSpec("P")


@deriving
def hessian_diagonal(f: Callable[P, Any], argnums: int | str = 0) -> Callable[P, Any]:
    """The diagonal of the Hessian of a scalar function, ``d^2 f / dx_i^2``, without the matrix.

    Dual numbers of dual numbers along each unit vector, in batches: the work of some two forward
    runs for each entry, and the memory of one batch of them. Where there are many entries, of which
    few meet each other, a product with the Hessian gives all those of one color. For containers, a
    container.

    >>> import functrans as ft, numpy as np
    >>> ft.hessian_diagonal(lambda x: x[0] ** 2 * x[1] + x[1] ** 3)(np.array([1.0, 2.0]))
    Array([ 4., 12.])
    """
    function = require_callable("hessian_diagonal", f)
    argnum = one_argument("hessian_diagonal", argnums)
    sizes: dict[tuple, int] = {}

    def along(args: tuple, kwargs: dict) -> tuple[Along, Callable]:
        job = Along("hessian_diagonal", function, argnum, args, kwargs, sizes)

        def image(ts: Sequence) -> list:
            run = job.twice(ts)
            job.require_scalar(run.values)
            return run.tangents

        return job, of_one_draw(function, f"hessian_diagonal({name_of(f)})", image)

    def diagonal(*args: P.args, **kwargs: P.kwargs) -> AnyArray:
        job, image = along(args, kwargs)
        by_color = _by_color(job)
        if by_color is None or (parts := by_color.parts()) is None:
            pieces: list = []
            job.batches().each(job.ways, 0, job.opened.primals, image,
                               lambda start, size, images: pieces.extend(images))
            entries = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            ends = np.cumsum([0, *[a.size for a in job.ways.avals]])
            parts = [
                np.reshape(entries[start:end], a.shape)
                for a, start, end in zip(job.ways.avals, ends, ends[1:], strict=False)
            ]
        return job.opened.only(hand_out_all(parts))

    def memory(*args: P.args, **kwargs: P.kwargs) -> int:
        job, image = along(args, kwargs)
        by_color = _by_color(job)
        return job.peak(image) if by_color is None else by_color.peak

    diagonal.memory = memory  # type: ignore[attr-defined]  # what it returns
    return diagonal


class _ByColor(NamedTuple):
    """Products of a Hessian with sums of unit vectors, of which each holds entries of its own."""

    route: Route
    batches: Callable[[], Batches]
    by_color: Compressed

    def parts(self) -> list | None:
        """The diagonal, a part an argument's leaf; None where a number is not finite."""
        route, (_, _, ends, colors, _) = self.route, self.by_color
        rows = Rows(self.by_color.sums, route.ways.avals)
        products = self.batches().run(rows, 0, route.values, route.image)
        if not all(map(is_finite, products)):
            return None
        return [
            np.reshape(y.reshape((rows.total, -1))[colors[end - a.size : end], np.arange(a.size)],
                       a.shape)
            for y, a, end in zip(products, route.ways.avals, ends, strict=True)
        ]

    @property
    def peak(self) -> int:
        """The bytes that are expected to be taken at once, at most."""
        route, rows = self.route, Rows(self.by_color.sums, self.route.ways.avals)
        e = self.batches().plan(rows, 0, route.values, route.image)
        return e.held + e.chunk * e.each + e.result + rows.matrix.nbytes + self.by_color.nbytes


def _by_color(along: Along) -> _ByColor | None:
    """None where unit vectors along which all numbers are carried do as well, or nothing else does.
    """
    if not many(along.ways):
        return None
    matrix: Any = hessian(along.f, along.argnum)
    job = matrix.func.job
    try:
        route = job.forward(select(job.who, job.f, along.argnum, *along.call))
        if any(map(is_staged, route.values)):
            return None
        linear = job.batches(route.tape).linear_map(route.ways, 0, route.values, route.image)
    except FunctransError:  # there may be no gradient
        return None
    if linear is None or sum([a.size for a in linear.outs]) != route.ways.total:
        return None
    made = compressed_on_diagonal(linear)
    return None if made is None else _ByColor(route, lambda: job.batches(route.tape), made)


@deriving
def laplacian(f: Callable[P, Any], argnums: int | str = 0) -> Callable[P, Any]:
    """The sum of the second derivatives, ``sum_i d^2 f / dx_i^2``, the trace of the Hessian.

    The forward Laplacian (R. Li et al., Nature Machine Intelligence 6, 2024): one run that carries
    the derivatives along all directions, in batches that fit, and of the second derivatives
    only their sum; of one output of many entries that hardly meet, the sum of ``hessian_diagonal``.
    For a function with several outputs, that of each; for containers, over all their entries.

    >>> import functrans as ft, numpy as np
    >>> ft.laplacian(lambda x: np.sum(x**4))(np.array([1.0, 2.0]))
    Array(60.)
    """
    function = require_callable("laplacian", f)
    argnum = one_argument("laplacian", argnums)
    sizes: dict[tuple, int] = {}

    def trace(*args: P.args, **kwargs: P.kwargs) -> AnyArray:
        job = Along("laplacian", function, argnum, args, kwargs, sizes)
        by_color = _by_color(job)
        if by_color is not None and (parts := by_color.parts()) is not None:
            (y,), structure = tree.flatten(function(*args, **kwargs))
            total = np.asarray(sum(map(np.sum, parts)), dtype_of(y)).reshape(shape_of(y))
            return tree.unflatten(structure, hand_out_all([total]))
        structure: Any = None
        try:
            totals, structure = _totals(job, _collapse)
        except Unfollowed:
            totals = None
        if totals is None or any(map(_has_nan, totals)):
            # a rule may refuse the point, and says why where it is run in the plain way
            totals, structure = _totals(job, _twice)
        return tree.unflatten(structure, hand_out_all(totals))

    def memory(*args: P.args, **kwargs: P.kwargs) -> int:
        job = Along("laplacian", function, argnum, args, kwargs, sizes)
        if (by_color := _by_color(job)) is not None:
            return by_color.peak
        try:
            return job.peak(lambda ts: _collapse(job, ts)[0])
        except Unfollowed:
            return job.peak(lambda ts: _twice(job, ts)[0])

    trace.memory = memory  # type: ignore[attr-defined]  # what it returns
    return trace


def _totals(job: Along, parts: Callable) -> tuple[list, Any]:
    """Curvatures of the outputs, from ``parts`` of them for each batch of directions."""
    structure: Any = None

    def image(ts: Sequence) -> list:
        nonlocal structure
        totals, structure = parts(job, ts)
        return totals

    image = of_one_draw(job.f, f"{job.who}({name_of(job.f)})", image)
    return job.batches().sums(job.ways, job.opened.primals, image), structure


def _collapse(job: Along, ts: Sequence) -> tuple[list, Any]:
    """By the forward Laplacian; Unfollowed where it does not see everything."""
    run = run_laplacian(job.who, job.f, job.opened, ts, job.chosen.call)
    return run.curvatures, run.structure


def _twice(job: Along, ts: Sequence) -> tuple[list, Any]:
    """From second derivatives along each direction."""
    run = job.twice(ts)
    return [summed(t, batch_of(ts)) for t in run.tangents], run.structure


def _has_nan(y: Any) -> bool:
    return not isinstance(y, Tracer) and bool(np.isnan(y).any())


def one_argument(who: str, argnums: Any) -> int | str:
    """``argnums`` where one argument is meant."""
    argnum = plain_argnums(who, argnums)
    if not isinstance(argnum, int | str):
        raise ArgumentError(f"{who}: argnums must be one argument, but is {argnum!r}")
    return argnum


class Along:
    """A function of one argument among others, and the unit vectors of that argument."""

    def __init__(self, who: str, f: Callable, argnum: int | str, args: tuple, kwargs: dict,
                 sizes: dict[tuple, int]):
        self.who, self.f, self.sizes = who, f, sizes
        self.argnum, self.call = argnum, (args, kwargs)
        self.chosen: Selected = select(who, f, argnum, args, kwargs)
        (label,) = labels(argnum)
        self.opened: Leaves = open_argument(who, f, label, self.chosen.values[0])
        avals = tuple(map(aval_of, self.opened.primals))
        if any(a.dtype.kind == "c" for a in avals):
            raise NotDifferentiable(
                f"{who}: argument {label} of `{name_of(f)}` is complex. Second derivatives are "
                "taken along real directions: pass real and imaginary part."
            )
        self.ways: Directions = directions(avals, 1j, False)

    def batches(self) -> Batches:
        instead = "hutchinson estimates the trace from a few products."
        return Batches(self.who, self.f, "auto", False, instead, self.sizes, tape=None)

    def peak(self, image: Callable) -> int:
        """The bytes that are expected to be taken at once, at most; one direction is run."""
        expected = self.batches().plan(self.ways, 0, self.opened.primals, image, placed=True)
        return expected.held + expected.chunk * expected.each

    def twice(self, ts: Sequence) -> JVPResult:
        """Second derivatives along directions: tangents of tangents."""

        def slope(x: Any) -> AnyArray:
            again = open_argument(self.who, self.f, 0, x)
            run = run_jvp(
                self.who, self.f, [again], [x], ts, False, lambda xs: self.chosen.call(xs)
            )
            return tree.unflatten(run.structure, run.tangents)

        slope.__name__ = name_of(self.f)
        (x,) = self.chosen.values
        return run_jvp(self.who, slope, [self.opened], [x], ts, False)

    def require_scalar(self, ys: Sequence) -> None:
        if len(ys) != 1 or aval_of(ys[0]).size != 1:
            found = ", ".join([repr(aval_of(y)) for y in ys])
            raise NotDifferentiable(
                f"{self.who} needs a scalar output, but `{name_of(self.f)}` returned {found}. "
                "Reduce the result, for example with .sum()."
            )
