"""Sums of cotangents, in place where nobody can see that.

``cts`` is the list that a walk of the tape fills, a cotangent or None for each slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from functrans._core.aval import aval_of
from functrans._core.bind import PLAIN, STRONG, Tracer, bind, cast, may_have_nan
from functrans._core.references import FREE_THREADED, is_exact
from functrans._kernels import large, sizes
from functrans._ops.indexing import scatter_add

# A scatter of less than one of so many entries waits for what else comes to arrays of so many:
# they are not filled with zeros first, and not added up.
FEW, WHOLE = 4, 1 << 9
# In programs an array is added up as a whole where more than one in so many of its entries is a
# part's.
SPARSE = 8


def add_cotangents(cts: list, slots: Sequence, contributions: Sequence) -> None:
    """Add each contribution to the cotangent at its slot; either may be None."""
    for slot, c in zip(slots, contributions, strict=True):
        if slot is not None and c is not None:
            if cts[slot] is None:
                cts[slot] = c
            else:
                add_into(cts, slot, c)


def add_into(cts: list, slot: int, c: Any) -> None:
    """Add ``c`` to the cotangent at ``slot``, in place if it is large and nobody can see it."""
    if type(c) is np.ndarray and c.size >= sizes.LARGE and is_alone(cts, slot):
        before = cts[slot]
        if before.shape == c.shape and before.dtype == c.dtype:
            large.elementwise(np.add, before, c, out=before)
            return
    cts[slot] = cts[slot] + c


def is_alone(cts: list, slot: int) -> bool:
    """Whether the array at ``slot`` has memory of its own, and only ``cts`` refers to it."""
    # two references: that of the list and that of the call
    if getrefcount(cts[slot]) > 2 or type(cts[slot]) is not np.ndarray:
        return False
    flags = cts[slot].flags
    return flags.owndata and flags.writeable and (not FREE_THREADED or is_exact(cts[slot]))


def unless_zero(parts: Sequence, cts: Sequence) -> Sequence:
    """``parts``, the contributions of cotangents; nothing if those are known to be zero."""
    if not any([c is not None and may_have_nan(c) for c in parts]):
        return parts
    zero = all([c is None or (not isinstance(c, Tracer) and not np.any(c)) for c in cts])
    return [None] * len(parts) if zero else parts


def accumulate(cts: list, late: dict, parent: int, action: Any, ct: Any, saved: tuple) -> None:
    """Add a scatter to the parent's cotangent, later where a larger one may still come there."""
    if cts[parent] is None and parent not in late and FEW * ct.size < saved[0].size >= WHOLE:
        late[parent] = action, ct, saved
        return
    if late and parent in late:
        scatter(cts, parent, *late.pop(parent))
    scatter(cts, parent, action, ct, saved)


def scatter(cts: list, parent: int, action: Any, ct: Any, saved: tuple) -> None:
    """Add a scatter to the parent's cotangent, in place where no one else can see that."""
    x, fixed, params = saved
    alone = is_alone(cts, parent)
    total = cts[parent]
    if (not alone and total is not None and type(total) not in STRONG) or not (
            PLAIN.issuperset(map(type, fixed))):
        c = action.pull(ct, *saved)
        cts[parent] = c if total is None else total + c
        return
    dtype = x[1]
    if total is None:
        total = cts[parent] = np.zeros(x[0], dtype)
    elif not alone or total.dtype != dtype:
        total = cts[parent] = np.array(total, dtype)
    action.accumulate(total, ct if ct.dtype is dtype else cast(ct, dtype), fixed, params)


def added_in_program(cts: list, parent: int, ct: Any, saved: tuple) -> bool:
    """Add a traced scatter to the parent's cotangent by an op that costs what ``ct`` holds.

    False where that is not the cheaper way, or not the same sum.
    """
    x, fixed, params = saved
    total = cts[parent]
    if total is None or ct.size * SPARSE > x.size or ct.dtype != x.dtype or aval_of(total) != x:
        return False
    cts[parent] = bind(scatter_add, total, ct, *fixed, pattern=params["pattern"])
    return True


def scatter_late(cts: list, late: dict) -> None:
    """Do what ``accumulate`` has deferred."""
    while late:
        slot, rest = late.popitem()
        scatter(cts, slot, *rest)
