"""How far traced integers are apart, where that is the same whatever they are.

``x[i : i + 3]`` has three entries for every ``i``, which its program can tell from the equations
that made the bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Var
from functrans._core.bind import Tracer
from functrans._ops import elementwise as ops
from functrans._transforms.staging.staging import StagedTracer, StagingTrace
from functrans._transforms.vmap import BatchTracer

# Equations that are followed back from a bound, at most.
DEEPEST = 32
# What a number is but for an integer that is added: equal ones are equal numbers.
Form = tuple[Any, int]


def distance(first: Any, last: Any) -> int | None:
    """``last - first``, None where it depends on the values of traced ones."""
    while isinstance(first, Tracer) and isinstance(last, Tracer):
        if isinstance(first, StagedTracer):
            if not isinstance(last, StagedTracer) or first.owner is not last.owner:
                return None
            return _between(first.owner, first.variable, last.variable)
        if isinstance(first, BatchTracer) and first.whole() is not None:
            return _of_values(first, last)
        first, last = first.inner, last.inner
    return None


def _between(trace: Any, first: Atom, last: Atom) -> int | None:
    (a, m), (b, n) = _form(trace, first, DEEPEST), _form(trace, last, DEEPEST)
    return n - m if a == b else None


def _of_values(first: BatchTracer, last: Tracer) -> int | None:
    """The distance in a batch whose numbers are known, if all entries have the same."""
    values = last.whole()
    if values is None or last.owner is not first.owner:
        return None
    distances = np.unique(np.asarray(values) - np.asarray(first.whole()))
    return int(distances[0]) if distances.size == 1 else None


def _form(trace: StagingTrace, a: Atom, depth: int) -> Form:
    """``a`` as something that does not change by adding integers, and the integer added."""
    if isinstance(a, Const) and a.value.ndim == 0 and a.value.dtype.kind == "i":
        return (), int(a.value)
    if not isinstance(a, Var):
        return ((), a) if type(a) is int else (a, 0)
    eqn = trace.definition(a)
    if eqn is None or eqn.prim.outputs > 1 or not depth:
        return a, 0
    forms = [_form(trace, x, depth - 1) for x in eqn.inputs]
    if eqn.prim in (ops.add, ops.subtract) and a.aval.dtype.kind == "i":
        (x, m), (y, n) = forms
        n = n if eqn.prim is ops.add else -n
        if y == () or (x == () and eqn.prim is ops.add):
            return (x if y == () else y), m + n
        return (eqn.prim, x, y), m + n
    return (eqn.prim, repr(eqn.params), *forms), 0
