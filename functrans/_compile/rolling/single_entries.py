"""Sums of single entries in a loop's body, made in place.

Backward, each piece adds what its ``x[i]`` sends back, an array that is zero but for one entry, to
a sum over all pieces. Adding that entry alone costs the entry, not the array, and leaves every bit
as it is but for one thing: x + 0 turns -0 into 0. Behind an addition -0 can stand only at the entry
just added to, so 0 is added to that one before the next addition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom
from functrans._compile.rolling.moving_index import Moving, lengths
from functrans._ops import elementwise as ops
from functrans._ops.indexing import ARRAY, put_add, scatter_add, scatter_set

# Arrays of fewer entries are added as fast as a single entry.
LARGE = 64
# An array with more than one in so many entries is added as a whole.
SPARSE = 8

Chain = list[tuple[Eqn, Eqn]]


def chains(eqns: Sequence[Eqn], state: Sequence[Var], ends: Sequence[Atom]) -> Iterator[Chain]:
    """The equations, ``put_add`` and ``add``, by which a piece adds entries to part of the state;
    of parts to which it does no more than that and write constants."""
    made = {v: eqn for eqn in eqns for v in eqn.outputs}
    uses = Counter(a for eqn in eqns for a in eqn.inputs if isinstance(a, Var))
    for v, end in zip(state, ends, strict=True):
        chain: Chain = []
        a = end
        while a is not v and isinstance(a, Var) and (eqn := made.get(a)) is not None:
            if eqn.prim is scatter_set and not _has_negative_zero(eqn.inputs[1]):
                a = eqn.inputs[0]
            elif (put := _entry(eqn, made, uses)) is not None:
                x, y = eqn.inputs
                a = y if x is put.outputs[0] else x
                chain.append((put, eqn))
            else:
                break
        if a is v and chain:
            yield chain[::-1]


def _has_negative_zero(a: Atom) -> bool:
    if isinstance(a, Var):
        return True
    x = np.asarray(a.value if isinstance(a, Const) else a)
    return x.dtype.kind not in "biuf" or bool((np.signbit(x) & (x == 0)).any())


def _entry(eqn: Eqn, made: dict[Var, Eqn], uses: Counter) -> Eqn | None:
    """The equation of an array of few entries that ``eqn`` adds and that nothing else reads."""
    out = eqn.outputs[0].aval
    if eqn.prim is not ops.add or out.dtype.kind != "f" or out.size < LARGE:
        return None
    for z in eqn.inputs:
        put = made.get(z) if isinstance(z, Var) and uses[z] == 1 else None
        if put is None or put.prim is not put_add or put.outputs[0].aval != out:
            continue
        v = put.inputs[0]
        if isinstance(v, Var) and v.aval.size * SPARSE <= out.size:
            return put
    return None


def apart(x: Moving, y: Moving, shape: tuple[int, ...]) -> bool:
    """Whether in no piece both indices reach one entry of an array of ``shape``."""
    if len(x.pattern) != len(y.pattern):
        return False
    n = lengths(x.pattern, shape)
    pairs = zip(_numbers(x), _numbers(y), n, lengths(y.pattern, shape), strict=True)
    return any([p is not None and q is not None and a == b and bool(((p - q) % a).all())
                for p, q, a, b in pairs])


def _numbers(index: Moving) -> list[np.ndarray | None]:
    """For each entry of a pattern the integers that it is in the pieces; None for slices, and for
    index arrays of the user's, which may reach an entry twice."""
    arrays = iter(index.arrays)
    found: list[np.ndarray | None] = []
    for e in index.pattern:
        x = next(arrays, None) if e is ARRAY else np.array(e) if type(e) is int else None
        found.append(None if x is None or x.ndim > 1 else x)
    return found


def added(
    put: Eqn, add: Eqn, other: Eqn, pattern: tuple, indices: Sequence[Var]
) -> list[Eqn]:
    """``add`` by entries, where the last addition was of what ``other`` puts at an index."""
    x, y = add.inputs
    total = y if x is put.outputs[0] else x
    v, *own = put.inputs
    out = add.outputs[0]
    zeros = np.zeros(aval_of_atom(other.inputs[0]).shape, out.aval.dtype)
    zeros.setflags(write=False)
    plain = Var(out.aval)
    return [
        Eqn(scatter_add, (total, Const(zeros), *indices), {"pattern": pattern}, (plain,), add.line),
        Eqn(scatter_add, (plain, v, *own), {"pattern": put.params["pattern"]}, (out,), add.line),
    ]
