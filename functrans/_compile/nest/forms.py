"""Integers that are affine in the indices of loops, and what can be proved of them.

    i, n = Index("i"), 10
    f = Form.of(i) * 2 + 1                          # 2*i+1
    inside = [Form.of(i), n - 1 - Form.of(i)]       # a domain: forms that are >= 0
    proves(inside, 19 - f)                          # True: 2*i+1 <= 19
    feasible([*inside, f - 25])                     # False: no such i

``feasible`` eliminates one index after the other (Fourier and Motzkin) and rounds rows to integers.
It is exact where it says False; True means "perhaps". ``proves`` asks it whether the opposite is
feasible, so True is exact there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_serials = itertools.count()
# Rows of constraints from which on the answer is "perhaps".
_MOST_ROWS = 2000


class Index:
    """The index of a loop or of an axis, or an integer read from data. Compared by identity."""

    __slots__ = ("name", "serial")

    def __init__(self, name: str):
        self.name, self.serial = name, next(_serials)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        return Index, (self.name,)


@dataclass(frozen=True, slots=True)
class Form:
    """``c + sum(k * index)``; the terms are in the order in which their indices were made."""

    c: int
    terms: tuple[tuple[Index, int], ...] = ()

    @staticmethod
    def of(x: Form | Index | int) -> Form:
        if isinstance(x, Form):
            return x
        return Form(0, ((x, 1),)) if isinstance(x, Index) else Form(int(x))

    @staticmethod
    def total(c: int, terms: Iterable[tuple[Index, int]]) -> Form:
        """The sum, with the terms of each index collected."""
        found: dict[Index, int] = {}
        for v, k in terms:
            found[v] = found.get(v, 0) + k
        kept = [(v, k) for v, k in found.items() if k]
        return Form(c, tuple(sorted(kept, key=lambda term: term[0].serial)))

    @property
    def constant(self) -> int | None:
        """Its value where it has no index."""
        return None if self.terms else self.c

    @property
    def indices(self) -> set[Index]:
        return {v for v, _ in self.terms}

    def factor(self, index: Index) -> int:
        return next((k for v, k in self.terms if v is index), 0)

    def __add__(self, other: Form | Index | int) -> Form:
        if not isinstance(other, Form | Index | int):
            return NotImplemented
        other = Form.of(other)
        return Form.total(self.c + other.c, (*self.terms, *other.terms))

    __radd__ = __add__

    def __mul__(self, k: int) -> Form:
        if not isinstance(k, int):
            return NotImplemented
        return Form.total(self.c * k, [(v, a * k) for v, a in self.terms])

    __rmul__ = __mul__

    def __neg__(self) -> Form:
        return self * -1

    def __sub__(self, other: Form | Index | int) -> Form:
        return self + -Form.of(other)

    def __rsub__(self, other: Form | Index | int) -> Form:
        return -self + other

    def replaced(self, values: Mapping[Index, Form]) -> Form:
        """With forms in the places of indices."""
        c, terms = self.c, []
        for v, k in self.terms:
            value = values.get(v)
            if value is None:
                terms.append((v, k))
            else:
                c += k * value.c
                terms += [(u, a * k) for u, a in value.terms]
        return Form.total(c, terms)

    def at(self, values: Mapping[Index, int]) -> int:
        """The number that it is where the indices are these."""
        return self.c + sum(k * values[v] for v, k in self.terms)

    def __reduce__(self) -> tuple:
        return Form.total, (self.c, self.terms)

    def __repr__(self) -> str:
        terms = [f"{'' if k == 1 else '-' if k == -1 else f'{k}*'}{v}" for v, k in self.terms]
        return "+".join(terms + [str(self.c)] * (bool(self.c) or not terms)).replace("+-", "-")


def proves(domain: Sequence[Form], form: Form | int) -> bool:
    """Whether ``form >= 0`` follows from every form of ``domain`` being >= 0."""
    form = Form.of(form)
    return form.c >= 0 if not form.terms else not feasible([*domain, -form - 1])


def feasible(domain: Sequence[Form], zero: Sequence[Form] = ()) -> bool:
    """False only if no integers make all of ``domain`` >= 0 and all of ``zero`` 0."""
    rows, left = list(domain), list(zero)
    while left:
        e = left.pop()
        if not e.terms:
            if e.c:
                return False
            continue
        if e.c % math.gcd(*[k for _, k in e.terms]):
            return False
        v, k = next(((v, k) for v, k in e.terms if abs(k) == 1), (None, 0))
        if v is None:
            rows += [e, -e]
            continue
        value = {v: (Form.of(v) * k - e) * k}
        rows, left = [a.replaced(value) for a in rows], [a.replaced(value) for a in left]
    return _feasible_rows({_tight(a) for a in rows})


def _feasible_rows(rows: set[Form]) -> bool:
    while True:
        if any(not a.terms and a.c < 0 for a in rows):
            return False
        rows = {a for a in rows if a.terms}
        if not rows or len(rows) > _MOST_ROWS:
            return True
        signs: dict[Index, tuple[int, int]] = {}
        for v, k in [term for a in rows for term in a.terms]:
            up, down = signs.get(v, (0, 0))
            signs[v] = (up + (k > 0), down + (k < 0))
        v = min(signs, key=lambda v: (signs[v][0] * signs[v][1], v.serial))
        up = [a for a in rows if a.factor(v) > 0]
        down = [a for a in rows if a.factor(v) < 0]
        rows = {a for a in rows if not a.factor(v)}
        if len(up) * len(down) > _MOST_ROWS:
            return True
        rows |= {_tight(a * -b.factor(v) + b * a.factor(v)) for a, b in itertools.product(up, down)}


def _tight(a: Form) -> Form:
    """The row divided by the common factor of its terms; its constant is rounded down."""
    g = math.gcd(*[k for _, k in a.terms]) if a.terms else 1
    return Form(a.c // g, tuple((v, k // g) for v, k in a.terms)) if g > 1 else a
