"""``scan``: a function applied entry by entry, with a carry from one to the next."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import dtype_of, plain, shape_of
from functrans._core.bind import AnyArray
from functrans._transforms.arguments import (
    describe,
    hand_out,
    is_number,
    is_value,
    require_callable,
)
from functrans._transforms.control import flow
from functrans._transforms.control.carry import (
    TIMES,
    Carry,
    as_arrays,
    handed_out,
    shown,
    staged_scan,
)
from functrans._transforms.control.revolve import Chain, Revolve
from functrans._transforms.derived import surfacing
from functrans._transforms.options import require_count
from functrans._transforms.reverse.checkpoint import checkpoint as recomputed
from functrans.errors import ArgumentError, ShapeError, name_of


@surfacing
def scan(
    f: Callable,
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    *,
    checkpoint: int | str | Revolve | None = None,
    progress: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """``carry, y = f(carry, x)`` for each entry ``x`` of ``xs`` along axis 0.

    ``c[k + 1], y[k] = f(c[k], x[k])`` for k = 0, ..., n - 1.

    Returns the last carry and the ``y``, stacked. ``init``, ``xs`` and what ``f`` returns may be
    containers; the carry is as in ``while_loop``. ``length`` is needed where ``xs`` holds no
    arrays, for example None. With ``reverse`` the entries are taken from the last to the first,
    and each ``y`` still lies where its ``x`` does. With no entries at all, ``f`` is run once on
    zeros, to know the shapes of ``y``. Under ``jit`` the loop is one equation, run natively.

    Reverse mode keeps what each step needs, or, where that is cheaper under ``jit``, the carry
    before it. With ``checkpoint`` it keeps the carry of a few steps and runs those between again:
    of about 2 sqrt(n) at a time with ``"sqrt"``, of at most so many with a number, which runs the
    fewest steps again that so many carries allow; with ``"revolve"`` of as few as let no step be
    run more than three times again. ``Revolve(...)`` may keep carries in files. Under ``jit``,
    where a program of unequal parts would be too long, parts are equal, in as many levels as it
    takes, and each level costs one more run forward (Griewank, Optimization Methods and Software 1,
    1992); fewer than some 3 log3(n) carries are not to be had so, 21 for 2,000 steps, and with a
    smaller number it keeps these.

    ``progress=True`` shows a bar on the standard error stream, also in compiled code: up to 50
    times, between steps that run natively; more often while ``jit`` compiles, or where steps are
    run again. Such a loop keeps the carry at those points beside what it keeps otherwise.

    ``unroll``, which JAX takes, changes nothing: the compiler decides how many steps of a short
    body it writes out.

    Raises ShapeError where lengths or the shapes of steps disagree, ArgumentError where ``f`` does
    not return a pair or the structure changes.

    >>> import functrans as ft, numpy as np
    >>> from functrans import scan
    >>> scan(lambda total, x: (total + x, total + x), 0.0, np.array([1.0, 2.0, 3.0]))
    (Array(6.), Array([1., 3., 6.]))
    """
    f = require_callable("scan", f)
    leaves = tree.leaves(as_arrays(xs))
    n = _length(f, leaves, length)
    if progress and n:
        return _with_bar(f, init, xs, n, reverse, checkpoint)
    begins = n > 0 and (flow.any_staged(init, leaves) or flow.reaches_staged(f))
    revolve = _schedule(checkpoint, n)
    if revolve is not None and n > 1 and not begins:
        try:
            return _revolve(f, init, xs, n, reverse, revolve)
        except _Late:  # nothing but its first step has run
            begins = True
    budget = checkpoint
    if revolve is not None:
        budget = max(2, revolve.states(n) - revolve.on_disk)
    if budget is not None and not isinstance(budget, Revolve) and (parts := levels(n, budget)):
        return _in_parts(f, init, xs, n, reverse, parts)
    return _whole(f, init, xs, n, reverse, begins)


class _Late(Exception):
    """The first step has shown that the function closes over a staged value."""


def _schedule(checkpoint: Any, n: int) -> Revolve | None:
    """The schedule of a number of carries, or of none that is named, where Python runs the steps.
    """
    if checkpoint is None or isinstance(checkpoint, Revolve):
        return checkpoint
    if isinstance(checkpoint, str):
        return Revolve() if checkpoint == "revolve" else None
    budget = _budget(checkpoint)
    return Revolve(snapshots=budget) if budget < n else None


def _whole(
    f: Callable, init: Any, xs: Any, n: int, reverse: bool, begins: bool
) -> tuple[Any, Any]:
    """The scan step by step, or natively; ``begins``: it is known to read a staged value."""
    step = _step(f)
    leaves, structure = tree.flatten(as_arrays(xs))

    def natively() -> tuple[Any, Any] | None:
        return staged_scan(step, init, xs, n, reverse, "scan")

    if begins and (outputs := natively()) is not None:
        return outputs
    state, rows = handed_out(init), []
    for k in reversed(range(n)) if reverse else range(n):
        state, y = step(state, tree.unflatten(structure, [v[k] for v in leaves]))
        # f closes over a staged value that was not seen: the step just run is dropped
        late = not rows and not begins and flow.any_staged(state, y)
        if late and (outputs := natively()) is not None:
            return outputs
        rows.append(tree.flatten(y))
    if not rows:
        return state, _no_entries(f, state, leaves, structure)
    return handed_out(state), _columns(f, rows[::-1] if reverse else rows)


def _step(f: Callable) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A step whose carry keeps its types."""
    carry = Carry("scan", f)

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        new, y = _pair(f, f(state, x))
        return carry.checked(state, new), y

    return step


def _length(f: Callable, leaves: Sequence, length: int | None) -> int:
    try:
        sizes = set() if length is None else {operator.index(length)}
    except TypeError:
        raise ArgumentError(f"scan: length must be an integer, but is {describe(length)}") from None
    for x in leaves:
        if not is_number(x) or not shape_of(x):
            raise ShapeError(
                f"scan: xs holds {describe(x)}, which has no axis 0 to run over. Bind what is the "
                "same for every step in the function."
            )
        sizes.add(shape_of(x)[0])
    if not sizes:
        raise ArgumentError(f"scan: xs of `{name_of(f)}` holds no arrays; pass length")
    if len(sizes) > 1:
        lengths = ", ".join(map(str, [shape_of(x)[0] for x in leaves]))
        asked = "" if length is None else f", and length is {length}"
        raise ShapeError(f"scan: the arrays in xs have lengths {lengths}{asked}. They must agree.")
    (n,) = sizes
    if n < 0:
        raise ShapeError(f"scan: length is {n}, but must not be negative")
    return n


def _budget(checkpoint: Any) -> int:
    return require_count("scan", "checkpoint", checkpoint, 2,
                         '"sqrt", "revolve", a Revolve(...) or, of carries to keep, ')


def levels(n: int, budget: int | str) -> list[int]:
    """The numbers of steps of the parts of a scan of ``n`` steps, from outer to inner ones.

    With parts of sizes s1 > s2 > ... reverse mode keeps n/s1 + s1/s2 + ... carries at a time: as
    many as the budget, in as few levels as that takes, or the fewest, about 3 log3(n), where it is
    less.
    """
    budget = 2 * math.isqrt(n) + 2 if budget == "sqrt" else _budget(budget)
    if n <= budget:
        return []
    depths = range(2, n.bit_length() + 1)
    kept = {d: d * math.ceil(n ** (1 / d)) for d in depths}
    depth = next((d for d in depths if kept[d] <= budget), min(depths, key=lambda d: kept[d]))
    share = math.ceil(n ** (1 / depth))
    return [share**k for k in range(depth - 1, 0, -1)]


def _in_parts(
    f: Callable, init: Any, xs: Any, n: int, reverse: bool, parts: list[int]
) -> tuple[Any, Any]:
    """The scan as scans of scans, each of ``parts[0]`` steps and recomputed."""

    def part(size: int) -> Callable:
        inner = [p for p in parts[1:] if p < size]  # the rest may be shorter than a part

        def run(state: Any, entries: Any) -> tuple[Any, Any]:
            if inner:
                return _in_parts(f, state, entries, size, reverse, inner)
            return scan(f, state, entries, size, reverse)

        return recomputed(run)

    return _by_parts(part, init, xs, n, reverse, parts[0])


def _with_bar(
    f: Callable, init: Any, xs: Any, n: int, reverse: bool, checkpoint: Any
) -> tuple[Any, Any]:
    """The scan in parts, after each of which the bar grows."""
    name = f"scan of {name_of(f)}"

    def part(size: int) -> Callable:
        def run(state: Any, entries: Any) -> tuple[Any, Any]:
            xs, counts = entries

            def steps(state: Any, xs: Any) -> tuple[Any, Any]:
                return scan(f, state, xs, size, reverse, checkpoint=checkpoint)

            state, ys = (recomputed(steps) if checkpoint else steps)(state, xs)
            return shown(state, counts[0 if reverse else -1], n, name), ys

        return run

    counts = np.arange(n, 0, -1) if reverse else np.arange(1, n + 1)
    return _by_parts(part, init, (as_arrays(xs), counts), n, reverse, math.ceil(n / TIMES))


def _by_parts(
    part: Callable, init: Any, xs: Any, n: int, reverse: bool, size: int
) -> tuple[Any, Any]:
    """The scan as one over parts of ``size`` steps, and one over the rest."""
    count = n // size
    rest = n - count * size
    first, last = slice(0, n - rest), slice(n - rest, n)
    if reverse:
        first, last = slice(rest, n), slice(0, rest)

    grouped = tree.map(lambda x: x[first].reshape(count, size, *x.shape[1:]), xs)
    state, ys = scan(part(size), init, grouped, count, reverse)
    ys = tree.map(lambda y: y.reshape(count * size, *y.shape[2:]), ys)
    if rest:
        state, last_ys = part(rest)(state, tree.map(lambda x: x[last], xs))
        pair = (last_ys, ys) if reverse else (ys, last_ys)
        ys = tree.map(lambda a, b: np.concatenate([a, b]), *pair)
    return state, ys


def _revolve(
    f: Callable, init: Any, xs: Any, n: int, reverse: bool, options: Revolve
) -> tuple[Any, Any]:
    """The scan as checkpoints within checkpoints, of unequal parts (``revolve.py``)."""
    step = _step(f)
    leaves, structure = tree.flatten(as_arrays(xs))
    begun = False

    def numbered(k: int, state: Any) -> tuple[Any, Any]:
        nonlocal begun
        at = n - 1 - k if reverse else k
        new, y = step(state, tree.unflatten(structure, [v[at] for v in leaves]))
        if not begun and flow.any_staged(new, y):
            raise _Late
        begun = True
        return new, _columns(f, [tree.flatten(y)])

    def join(parts: list) -> Any:
        return _join(f, parts[::-1] if reverse else parts)

    chain = Chain(f"scan of {name_of(f)}", numbered, join, options, n)
    return handed_out(chain.run(handed_out(init), 0, n, chain.states))


def _join(f: Callable, parts: list) -> Any:
    """What parts of a scan collect, joined along axis 0."""
    rows = [tree.flatten(ys) for ys in parts]
    _columns(f, [([y[0] for y in ys], structure) for ys, structure in rows])  # raises
    columns = zip(*[ys for ys, _ in rows], strict=True)
    return tree.unflatten(rows[0][1], [np.concatenate(ys) for ys in columns])


def _pair(f: Callable, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(
            f"scan: `{name_of(f)}` must return (carry, y), but returned {describe(out)}. Return "
            "None as y where there is nothing to collect."
        )
    return out


def _columns(f: Callable, rows: Sequence[tuple[list, tree.Structure]]) -> Any:
    """The outputs of the steps, stacked."""
    shape = rows[0][1]
    for k, (_, structure) in enumerate(rows):
        if structure != shape:
            raise ArgumentError(
                f"scan: the outputs of `{name_of(f)}` have the structure {structure!r} at entry "
                f"{k}, but had {shape!r} before"
            )
    leaves = zip(*[row for row, _ in rows], strict=True)
    return tree.unflatten(shape, [_stack(f, column) for column in leaves])


def _stack(f: Callable, column: Sequence) -> AnyArray:
    shapes = {shape_of(v) if is_value(v) else None for v in column}
    if None in shapes or len(shapes) > 1:
        raise ShapeError(
            f"scan: the outputs of `{name_of(f)}` cannot be stacked: they are "
            f"{', '.join(dict.fromkeys(map(describe, column)))}. Each step must return numbers of "
            "the same shapes."
        )
    return hand_out(np.stack([plain(v) for v in column]))


def _no_entries(f: Callable, init: Any, leaves: list, structure: tree.Structure) -> Any:
    zeros = [np.zeros(shape_of(x)[1:], dtype_of(x)) for x in leaves]
    with np.errstate(all="ignore"):
        _, y = _pair(f, f(init, tree.unflatten(structure, zeros)))
    return tree.map(lambda v: _stack(f, [v])[:0], y)
