"""Paths that differ within a batch: each entry gets what its own path returns.

The walk through the tree splits at a decision whose outcomes differ, and goes on for each outcome
with a mask of the entries that have it. Code runs for the whole batch; the entries that are not
meant have the values of one that is, so that nothing happens on a path, neither an error nor a NaN
nor a loop without end, that does not happen to an entry that takes it. Masks and fillings are ops
like others, so every transform inside and outside has the derivative of each entry's own path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.bind import PrimalTracer, Tracer, bind
from functrans._ops.indexing import ARRAY, getitem
from functrans._transforms.arguments import describe, hand_out_all
from functrans._transforms.staging.paths import (
    MOST_RESTARTS,
    Grow,
    Node,
    Source,
    TraceTree,
    call,
    decides,
    reach,
)
from functrans._transforms.staging.recording import Outcome, outcome_of
from functrans._transforms.vmap import BatchTrace, BatchTracer
from functrans.errors import ConcretizationError, user_line

# Which entry of each batch.
Entry = Mapping[BatchTrace, Any]


class Opened(NamedTuple):
    """A value without the traces around it: its batches, outermost first, have the first axes.

    ``moves``: it carried a derivative.
    """

    batches: list[BatchTrace]
    whole: Any
    moves: bool


def opened(x: Any) -> Opened:
    batches: list[BatchTrace] = []
    moves = False
    while isinstance(x, PrimalTracer | BatchTracer):
        newer = x.owner.active_trace()
        if newer is not None:
            x = newer.operand(x)
        elif isinstance(x.owner, BatchTrace):
            batches.insert(0, x.owner)
            x = x.inner
        else:
            x, moves = x.inner, True
    return Opened(batches, x, moves)


def is_batched(x: Any) -> bool:
    return isinstance(x, Tracer) and bool(opened(x).batches)


def _first(mask: Any) -> Entry:
    """An entry for which a mask holds, if there is one."""
    batches, whole, _ = opened(mask)
    if mask is None or not batches:
        return {}
    flat, found = np.reshape(whole, -1), {}
    last = flat.size - 1
    flat = np.min(np.where(flat, np.arange(last + 1), last))  # argmax is not native
    for batch in reversed(batches[1:]):
        found[batch] = flat % batch.batch_size
        flat = flat // batch.batch_size
    found[batches[0]] = flat
    return found


def _at(x: Any, entry: Entry) -> Any:
    """The value of one entry, without derivatives; of batches that it does not name the first."""
    batches, whole, _ = opened(x)
    flat: Any = 0
    for batch in batches:
        flat = flat * batch.batch_size + entry.get(batch, 0)
    rows = np.reshape(whole, (prod([b.batch_size for b in batches]), *np.shape(x)))
    return bind(getitem, rows, flat if isinstance(flat, Tracer) else np.asarray(flat),
                pattern=(ARRAY,))


def one_of(xs: Sequence, entry: Entry) -> list:
    """The values of one entry, by default the first, which decide where a new path goes."""
    empty = any([b.batch_size == 0 for x in xs if is_batched(x) for b in opened(x).batches])
    return [_at(x, entry) if is_batched(x) and not empty else x for x in xs]


class Filled(dict[Source, Any]):
    """The values of a walk behind a split, filled where they are first read."""

    def __init__(self, values: Mapping[Source, Any], mask: Any, entry: Entry):
        super().__init__()
        self.values_before, self.mask, self.entry = values, mask, entry

    def __missing__(self, key: Source) -> Any:
        x = self.values_before[key]
        y = np.where(self.mask, x, _at(x, self.entry)) if is_batched(x) else x
        self[key] = y
        return y


class Walk(NamedTuple):
    """Where some entries of the batch are: those of the mask, all of them if it is None; one of
    them is ``entry``.
    """

    node: Node | None
    values: dict[Source, Any]
    outcomes: list[Outcome]
    mask: Any
    entry: Entry


def run(paths: TraceTree, start: dict[Source, Any], grow: Grow) -> Any:
    """The result for values of which some are batched; NotImplemented if it takes too many paths.
    """
    for _ in range(paths.most + MOST_RESTARTS if paths.root else 0):
        ends = _ends(paths, start, grow)
        if ends is not None and (columns := _results(paths, ends)) is not None:
            return _join(columns, ends)
        if paths.endless:
            break
    return NotImplemented


def _ends(paths: TraceTree, start: dict[Source, Any], grow: Grow) -> list[Walk] | None:
    """The leaves that entries come to; None if the tree has grown meanwhile, or may not grow."""
    ends, todo = [], [Walk(paths.root, dict(start), [], None, {})]
    while todo:
        walk = todo.pop()
        node = walk.node
        if node is None:
            return None
        if node.test is None:
            ends.append(walk)
            continue
        if not decides(node, walk.values):
            return None
        for outcome, mask, entry in _split(node.convert, walk.values[node.test], walk.mask):
            outcomes = [*walk.outcomes, outcome]
            entry = entry or walk.entry
            if outcome.key not in node.children and not paths.endless:
                grow(outcomes, entry)
            values = walk.values if mask is walk.mask else Filled(walk.values, mask, entry)
            todo.append(Walk(node.children.get(outcome.key), values, outcomes, mask, entry))
    return ends


def _split(convert: Any, x: Any, mask: Any) -> Iterator[tuple[Outcome, Any, Entry]]:
    """The outcomes of a decision, each with the mask of the entries that have it, and one of them.
    """
    batches, _, moves = opened(x)
    empty = any([batch.batch_size == 0 for batch in batches])
    if not batches or empty or (moves and convert in (float, complex)):
        yield outcome_of(convert, x), mask, {}  # or what it raises, lest a derivative is lost
        return
    x, rest = np.reshape(x, ()), mask
    while True:
        entry = _first(rest)
        outcome = outcome_of(convert, _at(x, entry))
        same = _came_out(x, outcome)
        own = same if rest is None else rest & same
        others = ~same if rest is None else rest & ~same
        more = bool(np.any(opened(others).whole))
        yield outcome, own if more or rest is not mask else mask, entry
        if not more:
            return
        rest = others


def _came_out(x: Any, outcome: Outcome) -> Any:
    """Whether a decision by ``x`` has an outcome."""
    value = outcome.value
    if isinstance(value, Exception):  # of int(nan), int(inf)
        return np.isinf(x) if isinstance(value, OverflowError) else np.isnan(x)
    if isinstance(value, bool):
        return (x != 0) == value
    if isinstance(value, float):
        equal = np.isnan(x) if np.isnan(value) else x == value
        return equal & (np.signbit(x) == np.signbit(value))
    return (np.trunc(x) if x.dtype.kind == "f" else x) == value


def _results(paths: TraceTree, ends: Sequence[Walk]) -> list[Sequence] | None:
    """What the leaves give the whole batch; None if the tree has grown meanwhile."""
    columns: list[Sequence] = []
    for node, values, *_ in ends:
        assert node is not None and node.piece.entry is not None, node
        args = reach(node, values)
        if args is None:
            return None
        paths.use(node)
        columns.append(call(node.piece.entry, args))
        _require_like(paths, ends[0].node, columns[0], node, columns[-1])
    return columns


def _join(columns: list[Sequence], ends: Sequence[Walk]) -> Any:
    """Of each entry the results of its own leaf."""
    ys = columns[-1]
    for outs, walk in zip(columns[:-1], ends, strict=False):
        ys = [np.where(walk.mask, a, b) for a, b in zip(outs, ys, strict=True)]
    assert ends[0].node is not None
    return tree.unflatten(ends[0].node.structure, hand_out_all(list(ys)))


def _require_like(paths: TraceTree, first: Any, xs: Sequence, other: Any, ys: Sequence) -> None:
    """Raise unless two leaves return what can be entries of one batch."""
    shapes = [[np.shape(v) for v in values] for values in (xs, ys)]
    if first.structure == other.structure and shapes[0] == shapes[1]:
        return
    a, b = (describe(tree.unflatten(leaf.structure, list(values)))
            for leaf, values in ((first, xs), (other, ys)))
    raise ConcretizationError(
        f"{user_line()}: {paths.name} returns {a} for some entries of a batch and {b} for others. "
        "All must be alike, as those of ft.cond are."
    )
