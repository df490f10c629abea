"""Which values a nest overwrites although its backward reads them.

Backward, memory holds at each moment what it held forward, as far as it is read: a store that
writes over what is read at an earlier moment saves the old value first, and the backward puts it
back. Whether it does is a question about integers: is there a pass of the store that comes later
than a pass of the read and is at the same place? "Perhaps" saves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from functrans._compile.nest.forms import Form, Index, feasible
from functrans._compile.nest.ir import (
    ROOM,
    Axes,
    Block,
    Entry,
    For,
    If,
    Let,
    Place,
    Statement,
    While,
    limits,
    other_pass,
    parts,
)

# Passes of outer loops up to which the room for saved values is counted, not estimated.
COUNTED = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """A statement, what is around it, and when it runs.

    ``order`` are its places in the blocks around it, each followed by the number of the block in
    its statement. ``domain`` is >= 0 for its passes; ``known`` are the indices that are defined.
    """

    statement: Statement
    above: tuple[Statement, ...]
    order: tuple[int, ...]
    domain: tuple[Form, ...]
    known: tuple[Index, ...]


def spots(
    body: Block,
    above: Sequence[Statement] = (),
    order: Sequence[int] = (),
    domain: Sequence[Form] = (),
    known: Sequence[Index] = (),
) -> list[Spot]:
    """All statements of a block, outer ones first."""
    found: list[Spot] = []
    domain, known = tuple(domain), tuple(known)
    for n, s in enumerate(body):
        found.append(Spot(s, tuple(above), (*order, n), domain, known))
        if isinstance(s, Let):
            domain, known = (*domain, *limits(s)), (*known, s.index)
        inner = (s.index,) if isinstance(s, For | While) else ()
        for k, part in enumerate(parts(s)):
            around = (*domain, *limits(s))
            if isinstance(s, If) and not k:
                around = (*around, *s.forms)
            elif isinstance(s, If) and len(s.forms) == 1:
                around = (*around, -s.forms[0] - 1)
            found += spots(part, (*above, s), (*order, n, k), around, (*known, *inner))
    return found


@dataclass(frozen=True, slots=True)
class Read:
    """The backward reads a place, for all axes, as it was at a statement.

    ``before``: as it was before the statement wrote to it.
    """

    spot: Spot
    place: Place
    axes: Axes
    before: bool


def overwrites(spot: Spot, place: Place, axes: Axes, read: Read) -> bool:
    """Whether a store may write to what is read, at a later moment."""
    known = [*spot.known, *[v for v, _ in axes], *_positions(spot.statement)]
    other = other_pass(known)
    base = [*read.spot.domain, *limits(read.axes)]
    base += [f.replaced(other) for f in (*spot.domain, *limits(axes))]
    same = [a.replaced(other) - b for a, b in zip(place.at, read.place.at, strict=True)]
    later: list[Form] = []
    for a, b in zip(spot.above, read.spot.above, strict=False):
        if a is not b:
            break
        if isinstance(a, For | While):
            ahead = other[a.index] - a.index
            later.append(-ahead if isinstance(a, For) and a.reverse else ahead)
    for n, ahead in enumerate(later):
        if feasible([*base, ahead - 1], [*same, *later[:n]]):
            return True
    ours, theirs = spot.order, read.spot.order
    behind = ours > theirs if ours != theirs else read.before
    return behind and feasible(base, [*same, *later])


def _positions(s: Statement) -> list[Index]:
    return [s.stack.position] if isinstance(s, Entry) and s.stack is not None else []


def passes(spot: Spot, axes: Axes) -> int | None:
    """How often axes run at a spot, all passes of the loops around together.

    Branches by data count as taken, bounds from data as the largest that they may be. None where
    that is not known, or too much.
    """
    at: dict[Index, np.ndarray] = {}
    size, more = 1, 1
    for s, part in zip(spot.above, spot.order[1::2], strict=True):
        if isinstance(s, While):
            return None
        if isinstance(s, For):
            if (s.lo.indices | s.hi.indices) <= set(at):
                at, size = _enter(at, size, s.index, s.lo, s.hi)
            else:
                more *= _most(s.hi - s.lo, spot.domain)
        elif isinstance(s, If) and not part and all(f.indices <= set(at) for f in s.forms):
            holds = np.all([_values(f, at, size) >= 0 for f in s.forms], axis=0)
            holds = np.broadcast_to(holds, (size,))
            at, size = {v: x[holds] for v, x in at.items()}, int(holds.sum())
        if size > COUNTED:
            return None
    known = [(v, n) for v, n in axes if n.indices <= set(at) | {u for u, _ in axes}]
    for v, n in axes:
        if (v, n) not in known:
            more *= _most(n, [*spot.domain, *limits(axes)])
    for v, n in known[:-1]:
        at, size = _enter(at, size, v, Form(0), n)
        if size > COUNTED:
            return None
    if known:
        size = int(np.maximum(_values(known[-1][1], at, size), 0).sum())
    return None if more > 1 and more * size > ROOM else more * size


def _most(f: Form, domain: Sequence[Form]) -> int:
    """The largest that a form may be, by the constant limits of its indices."""
    total = f.c
    for v, k in f.terms:
        ends = [
            g.c * -g.factor(v)
            for g in domain
            if g.indices == {v} and abs(g.factor(v)) == 1 and (g.factor(v) < 0) == (k > 0)
        ]
        if not ends:
            return ROOM + 1
        total += k * (min(ends) if k > 0 else max(ends))
    return max(total, 0)


def _enter(
    at: dict[Index, np.ndarray], size: int, index: Index, lo: Form, hi: Form
) -> tuple[dict[Index, np.ndarray], int]:
    """The values of all indices in each pass inside of a loop, and how many passes there are."""
    first, end = (_values(f, at, size) for f in (lo, hi))
    lengths = np.maximum(end - first, 0)
    total = int(lengths.sum())
    if total > COUNTED:
        return {}, total
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    inside = {v: np.repeat(x, lengths) for v, x in at.items()}
    inside[index] = np.repeat(first, lengths) + np.arange(total) - starts
    return inside, total


def _values(f: Form, at: Mapping[Index, np.ndarray], size: int) -> np.ndarray:
    total = np.full(size, f.c)
    for v, k in f.terms:
        total = total + k * at[v]
    return total
