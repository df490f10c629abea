"""Sums over shards of data, ``sum_i f(w, X_i, y_i)``, and their derivatives."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from functrans import tree
from functrans._core.array import aval_of, integer, shape_of
from functrans._transforms.arguments import describe, hand_out_tree, is_number, require_callable
from functrans._transforms.matrices.jacobian import hessian, jacobian
from functrans._transforms.matrices.products import hvp
from functrans._transforms.options import require_choice
from functrans._transforms.reach import Reach, RefusingDraws
from functrans._transforms.reverse.grad import grad, value_and_grad
from functrans.errors import ArgumentError, ShapeError, name_of

# ---- Sums over shards of data, ``sum_i f(w, X_i, y_i)``: what each shard adds, joined in a tree
#
# The shape of the tree depends on the number of shards alone, so that neither workers nor their
# timing change a bit of the sum.

# How many parts one step of the tree adds.
FAN_IN = 8
_DRAWS = "the same or others for each shard, by the worker that takes it"


class Part(NamedTuple):
    """The sum over some shards. ``layout``: the shape of a row of each array of theirs."""

    shard: int  # the first of them
    rows: int
    layout: tuple[tuple[int, ...], ...]
    value: Any  # None of no rows


class Sums(NamedTuple):
    """How parts are joined. ``who`` and ``title``, the user's function, are for messages."""

    who: str
    title: str
    mean: bool

    def join(self, parts: Sequence[Part]) -> Part:
        """The sum of parts, in order."""
        first, filled = parts[0], [p for p in parts if p.rows]
        for p in parts:
            self._require_same_rows(first, p)
        value = filled[0].value if filled else None
        for p in filled[1:]:
            self._require_same_values(filled[0], p)
            value = tree.map(operator.add, value, p.value)
        return Part(first.shard, sum(p.rows for p in parts), first.layout, value)

    def _require_same_rows(self, a: Part, b: Part) -> None:
        if a.layout != b.layout:
            raise ShapeError(
                f"{self.who}: shards must have rows of one shape, but those of shard {b.shard} are "
                f"{_rows(b)}, those of shard {a.shard} {_rows(a)}"
            )

    def _require_same_values(self, a: Part, b: Part) -> None:
        if _form(a.value) != _form(b.value):
            raise ShapeError(
                f"{self.who}: `{self.title}` must give the same shapes on every shard to be "
                f"summed, but gave {describe(b.value)} on shard {b.shard}, {describe(a.value)} on "
                f"shard {a.shard}"
            )

    def result(self, part: Part) -> Any:
        """What the caller gets of the sum over all shards."""
        if not part.rows:
            raise ShapeError(f"{self.who}: there are no rows in the data of `{self.title}`")
        if not self.mean:
            return hand_out_tree(part.value)
        return hand_out_tree(tree.map(lambda v: v / float(part.rows), part.value))


def _rows(part: Part) -> str:
    return ", ".join(map(str, part.layout))


def _form(x: Any) -> tuple:
    leaves, structure = tree.flatten(x)
    return repr(structure), list(map(shape_of, leaves))


class Summand(NamedTuple):
    """A function of whole and of sharded arguments, and how its values are added.

    ``f`` is the user's, ``g`` what is summed: itself or a derivative of it. The first ``whole``
    arguments are no data, unless ``in_axes`` says otherwise.
    """

    sums: Sums
    f: Callable
    g: Callable
    argnums: tuple[int, ...]  # what is differentiated
    in_axes: tuple[int | None, ...] | None
    whole: int

    def axes(self, args: tuple) -> tuple[int | None, ...]:
        """0 for each argument that is sharded along axis 0, None for one that is passed whole."""
        who, f = self.sums.who, self.sums.title
        axes = self.in_axes
        if axes is None:
            axes = (None,) * self.whole + (0,) * (len(args) - self.whole)
        if len(axes) != len(args):
            raise ArgumentError(
                f"{who}: in_axes must have one entry for each argument of `{f}`, but is {axes!r} "
                f"for {len(args)} arguments"
            )
        if 0 not in axes:
            raise ArgumentError(f"{who}: no argument of `{f}` is sharded; in_axes is {axes!r}")
        for n in self.argnums:
            if n >= len(axes) or axes[n] is not None:
                raise ArgumentError(
                    f"{who}: argnums names argument {n} of `{f}`, which is "
                    f"{'sharded' if n < len(axes) else 'missing'}. Derivatives are summed over "
                    f"shards in arguments that are passed whole, None in in_axes: {axes!r}"
                )
        return axes

    def part(self, axes: tuple, shard: int, args: tuple) -> Part:
        """What one shard adds."""
        data = [x for a, arg in zip(axes, args, strict=True) if a == 0 for x in tree.leaves(arg)]
        rows, layout = self._shape(shard, data)
        if not rows:
            return Part(shard, 0, layout, None)
        reach = Reach(self.f, *args).finish()
        with RefusingDraws(reach, f"{self.sums.who}({self.sums.title})", _DRAWS):
            value = self.g(*args)
        self._require_sums(tree.leaves(value))
        if self.sums.mean:
            value = tree.map(lambda v: v * float(rows), value)
        return Part(shard, rows, layout, value)

    def _shape(self, shard: int, data: list) -> tuple[int, tuple]:
        shapes: list[tuple[int, ...]] = [getattr(x, "shape", ()) for x in data]
        if not shapes or not all(shapes) or len({s[0] for s in shapes}) > 1:
            have = ", ".join(map(describe, data)) or "no arrays"
            raise ShapeError(
                f"{self.sums.who}: the arrays of a shard must have the same number of rows, but "
                f"shard {shard} of `{self.sums.title}` has {have}"
            )
        return shapes[0][0], tuple(s[1:] for s in shapes)

    def _require_sums(self, leaves: list) -> None:
        for x in leaves:
            if not is_number(x) or aval_of(x).dtype.kind == "b":
                raise ArgumentError(
                    f"{self.sums.who}: `{self.sums.title}` returned {describe(x)}, which has no "
                    "sum over shards. Return numbers."
                )


class Tree:
    """Adds parts as they come, in the tree that levels of ``FAN_IN`` make."""

    def __init__(self, sums: Sums):
        self.sums = sums
        self.levels: list[list[Part]] = [[]]

    def add(self, part: Part, level: int = 0) -> None:
        if level == len(self.levels):
            self.levels.append([])
        self.levels[level].append(part)
        if len(self.levels[level]) == FAN_IN:
            self._carry(level)

    def _carry(self, level: int) -> None:
        parts, self.levels[level] = self.levels[level], []
        self.add(self.sums.join(parts), level + 1)

    def total(self) -> Part:
        for level in range(len(self.levels)):
            is_top = level == len(self.levels) - 1
            if self.levels[level] and not (is_top and len(self.levels[level]) == 1):
                self._carry(level)
        return self.levels[-1][0]


# ---- Which derivatives are summed over shards, and the options of such sums

DERIVATIVES: dict[str, Callable] = {
    "grad": grad, "value_and_grad": value_and_grad, "jacobian": jacobian, "hessian": hessian,
}


def total_of(who: str, f: Any, in_axes: Any, reduction: Any) -> Summand:
    """The values of ``f`` themselves, summed."""
    require_callable(who, f)
    return Summand(_sums(who, f, reduction), f, f, (), _axes(who, in_axes), 1)


def derivative_of(who: str, kind: str, f: Any, argnums: Any, in_axes: Any, reduction: Any
                  ) -> Summand:
    """A derivative of ``f`` in arguments that every shard is given whole."""
    require_callable(who, f)
    numbers = _argnums(who, argnums)
    g = DERIVATIVES[kind](f, numbers if isinstance(argnums, list | tuple) else numbers[0])
    return Summand(_sums(who, f, reduction), f, g, numbers, _axes(who, in_axes), 1)


def product_of(who: str, f: Any, in_axes: Any, reduction: Any) -> Summand:
    """``(value, H v)`` of ``f(w, *data)``; the arguments are ``w, v, *data``."""
    require_callable(who, f)
    g = functools.partial(_hvp, f)
    return Summand(_sums(who, f, reduction), f, g, (), _axes(who, in_axes), 2)


def _hvp(f: Callable, w: Any, v: Any, *data: Any) -> tuple:
    @functools.wraps(f, updated=())
    def of_first(w: Any) -> Any:
        return f(w, *data)

    value, (product,) = hvp(of_first, (w,), (v,))
    return value, product


def _sums(who: str, f: Any, reduction: Any) -> Sums:
    require_choice(who, "reduction", reduction, ("sum", "mean"))
    return Sums(who, name_of(f), reduction == "mean")


def _axes(who: str, in_axes: Any) -> tuple[int | None, ...] | None:
    if in_axes is None:
        return None
    if not isinstance(in_axes, list | tuple) or not all(
        a is None or integer(a) == 0 for a in in_axes
    ):
        raise ArgumentError(
            f"{who}: in_axes must be a tuple of 0, sharded along axis 0, and None, passed whole, "
            f"but is {in_axes!r}"
        )
    return tuple(None if a is None else 0 for a in in_axes)


def _argnums(who: str, argnums: Any) -> tuple[int, ...]:
    several = argnums if isinstance(argnums, list | tuple) else (argnums,)
    numbers = [n for n in map(integer, several) if n is not None and n >= 0]
    if len(numbers) != len(several) or not numbers:
        raise ArgumentError(
            f"{who}: argnums must be positions of arguments that are passed whole, an int from 0 "
            f"on or a tuple of them, but is {argnums!r}"
        )
    return tuple(numbers)
