"""Steps of drawn programs that are loops, branches, checkpoints and indexing by computed integers.

What a body returns has the shape and dtype of what it is given, so a body can be drawn without
being run, and hold loops itself. What decides is exact: the same on every way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

DEPTH = 2  # of loops and branches in each other
STEPS_TAKEN = [3, 2, 1, 4, 0]

# {c} is what keeps its type, {w} something that broadcasts to it
SMOOTH = ["np.sin({c} + {w})", "{c} * 0.5 + np.tanh({w})", "np.cos({c}) * np.tanh({w})", "-{c}",
          "np.tanh({c}) - 0.3 * np.sin({w})", "np.exp(-{c} * {c})", "{c}", "{w} + 0.0 * {c}",
          "np.sqrt(1 + {c} * {c}) * 0.5", "np.where({w} == {w}, {c}, 0.0) * 0.7"]
EXACT = ["{c} + {w}", "{c} * 0.5", "np.maximum({c}, {w})", "np.where({c} > {w}, {c}, -{w})", "-{c}",
         "np.sqrt(np.abs({c}))", "{c} - {w}", "np.abs({c})", "{c}", "{c} * {w}"]
WHOLE = ["{c} + {w}", "{c} ^ {w}", "{c} * 2 - {w}", "np.maximum({c}, {w})", "~{c}", "{c}",
         "np.where({c} > {w}, {w}, {c})"]


class Name(NamedTuple):
    """A name that a body can use."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    exact: bool


class Bodies:
    """Draws the expressions of bodies, from names of the drawer ``d`` and their own."""

    def __init__(self, d: Any):
        self.d = d
        self.count = 0
        self.scope = [Name(v.name, v.shape, v.dtype, v.exact) for v in d.values]

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def fitting(self, c: Name, scope: Sequence[Name]) -> str:
        """Something that broadcasts to ``c``, recent names first."""
        texts = [w.name for w in reversed(scope) if w.dtype == c.dtype and _into(w.shape, c.shape)]
        texts.append("2" if c.dtype.kind == "i" else f"({c.name} * 0.0 + 0.75)")
        return self.d.pick(texts[:6])

    def plain(self, c: Name, scope: Sequence[Name]) -> str:
        """An expression of the type of ``c`` without loops."""
        texts = WHOLE if c.dtype.kind == "i" else EXACT if self.d.exact else SMOOTH
        if c.shape and c.dtype.kind == "f" and not self.d.number(0, 3):
            texts = ["{c}[::-1]", "np.roll({c}, 1)", "np.concatenate([{c}[1:], {c}[:1]])"]
        return self.d.pick(texts).format(c=c.name, w=self.fitting(c, scope))

    def of(self, c: Name, scope: Sequence[Name], depth: int) -> str:
        """An expression of the type of ``c``."""
        if depth <= 0 or self.d.number(0, 2):
            return self.plain(c, scope)
        how = self.d.pick([self.scanned, self.counted, self.tested, self.chosen, self.again])
        return how(c, scope, depth)

    def whole(self, scope: Sequence[Name]) -> str:
        """An integer that is computed, the same on every way."""
        exact = [w for w in reversed(scope) if w.exact and w.dtype.kind in "fib"]
        if not exact:
            return "1"
        w = self.d.pick(exact[:4])
        if w.dtype.kind == "i" and not w.shape:
            return w.name
        return f"np.sum({w.name} > {self.d.pick(['0', '1', '-1'])})"

    # ---- loops

    def step(self, c: Name, scope: Sequence[Name], depth: int, i: str | None) -> str:
        """The body of a loop, where ``i`` is a counter from 0."""
        if i is not None and c.shape and c.shape[0] and not self.d.number(0, 1):
            return self.entry(c, scope, i)
        if i is not None and c.dtype.kind == "f" and not self.d.number(0, 2):
            return f"({self.of(c, scope, depth)}) * (0.5 + 0.05 * {i})"
        return self.of(c, scope, depth)

    def entry(self, c: Name, scope: Sequence[Name], i: str) -> str:
        """Reading and writing entries of ``c`` where a counter says."""
        n = c.shape[0]
        at = self.d.pick([f"{i} % {n}", f"{i} % {n} - {n}", f"({i} + {self.whole(scope)}) % {n}"])
        one = Name(f"{c.name}[{at}]", c.shape[1:], c.dtype, False)
        value = self.plain(one, [w for w in scope if w.name != c.name])
        how = self.d.pick(["set", "add", "set"])
        texts = [f"{c.name}.at[{at}].{how}({value})", f"{c.name} + {c.name}[{at}]",
                 f"{c.name}.at[{at}].{how}({value}).at[0].{how}({one.name})"]
        return self.d.pick(texts)

    def counted(self, c: Name, scope: Sequence[Name], depth: int) -> str:
        i, x = self.fresh("i"), self.fresh("c")
        own = c._replace(name=x, exact=False)
        body = self.step(own, [*scope, own], depth - 1, i)
        n = str(self.d.pick(STEPS_TAKEN))
        if self.d.exact and not self.d.number(0, 2):
            n = f"({self.whole(scope)}) % 5"  # not known when staged
        return f"ft.fori_loop(0, {n}, lambda {i}, {x}: {body}, {c.name})"

    def tested(self, c: Name, scope: Sequence[Name], depth: int) -> str:
        x = self.fresh("s")
        own, k = c._replace(name=f"{x}[0]", exact=False), f"{x}[1]"
        counter = Name(k, (), np.dtype("i8"), True)
        body = self.step(own, [*scope, own, counter], depth - 1, k)
        most = f", max_steps={self.d.pick([5, 4, 2])}"
        if self.d.exact and self.d.flag():
            most = ""
        test = f"{k} < ({self.whole(scope)}) % 5"
        starts = ["0", "np.int64(0)", "np.int64(2)"] if c.dtype.itemsize == 8 else ["0", "1"]
        start = self.d.pick(starts)
        return (f"ft.while_loop(lambda {x}: {test}, lambda {x}: ({body}, {k} + 1), "
                f"({c.name}, {start}){most})[0]")

    def scan(self, c: Name, scope: Sequence[Name], depth: int) -> tuple[str, str]:
        """A scan, whose carry is of one or two parts, and where the part like ``c`` is."""
        x, e = self.fresh("c"), self.fresh("e")
        own = c._replace(name=x, exact=False)
        arrays = [w for w in scope if w.dtype == c.dtype and w.shape and "." not in w.name
                  and _into(w.shape[1:], c.shape)]
        inner, xs, more = [*scope, own], "None", f", length={self.d.pick(STEPS_TAKEN)}"
        if arrays and self.d.number(0, 3):
            w = self.d.pick(arrays)
            inner.append(Name(e, w.shape[1:], w.dtype, w.exact))
            xs, more = w.name, ""
        if self.d.flag():
            more += ", reverse=True"
        if not self.d.exact and not self.d.number(0, 4):
            more += ", checkpoint=" + self.d.pick(['"sqrt"', "2"])
        collected = self.d.pick([x, self.plain(own, inner), "None", f"({x}, np.sum({x}))"])
        if collected.startswith("(") and self.d.exact:
            collected = x  # a sum has several right answers
        if self.d.flag():
            body = self.step(own, inner, depth - 1, None)
            text = f"ft.scan(lambda {x}, {e}: ({body}, {collected}), {c.name}, {xs}{more})"
            return text, "[0]"
        two = own._replace(name=f"{x}[0]")
        count = Name(f"{x}[1]['k']", (), np.dtype("i8"), True)
        inner = [two if w is own else w for w in inner]
        body = self.step(two, [*inner, count], depth - 1, count.name)
        collected = self.d.pick([two.name, count.name, "None"])
        start = self.d.pick(["0", "1"])
        return (f"ft.scan(lambda {x}, {e}: (({body}, {{'k': {count.name} + 1}}), {collected}), "
                f"({c.name}, {{'k': {start}}}), {xs}{more})"), "[0][0]"

    def scanned(self, c: Name, scope: Sequence[Name], depth: int) -> str:
        return "".join(self.scan(c, scope, depth))

    # ---- branches

    def chosen(self, c: Name, scope: Sequence[Name], depth: int) -> str:
        if self.d.flag():
            a, b = (self.of(c, scope, depth - 1) for _ in range(2))
            test = self.whole(scope)
            return f"ft.cond(({test}) % 3 > 0, lambda: {a}, lambda: {b})"
        x = self.fresh("c")
        own = c._replace(name=x, exact=False)
        bodies = [self.of(own, [*scope, own], depth - 1) for _ in range(self.d.number(1, 3))]
        functions = ", ".join(f"lambda {x}: {b}" for b in bodies)
        return f"ft.switch(({self.whole(scope)}) % 4 - 1, [{functions}], {c.name})"

    def again(self, c: Name, scope: Sequence[Name], depth: int) -> str:
        x = self.fresh("c")
        own = c._replace(name=x, exact=False)
        return f"ft.checkpoint(lambda {x}: {self.of(own, [*scope, own], depth - 1)})({c.name})"


def _into(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether shape ``a`` broadcasts to ``b``."""
    try:
        return np.broadcast_shapes(a, b) == b
    except ValueError:
        return False


def _carried(d: Any) -> tuple[Bodies, Name] | None:
    if (v := d.value("fi" if d.exact else "f")) is None or v.dtype.itemsize < 4:
        return None
    return Bodies(d), Name(v.name, v.shape, v.dtype, False)


def looped(d: Any) -> None:
    if (found := _carried(d)) is not None:
        bodies, c = found
        how = d.pick([bodies.counted, bodies.tested, bodies.scanned, bodies.again])
        d.add(how(c, bodies.scope, DEPTH), d.exact)


def collected(d: Any) -> None:
    """A scan, of which the last state and what was collected are used."""
    if (found := _carried(d)) is None:
        return
    bodies, c = found
    name = d.hold(bodies.scan(c, bodies.scope, DEPTH)[0])
    for text in _parts(name, d.held[name]):
        d.add(text, d.exact)


def _parts(name: str, x: Any) -> list[str]:
    if isinstance(x, tuple):
        return [p for i, y in enumerate(x) for p in _parts(f"{name}[{i}]", y)]
    return [] if x is None or isinstance(x, dict | int) else [name]


def branched(d: Any) -> None:
    if (found := _carried(d)) is not None:
        bodies, c = found
        d.add(bodies.chosen(c, bodies.scope, DEPTH), d.exact)


def picked(d: Any) -> None:
    """Indexing by an integer that is computed."""
    if (v := d.value("fib", axes=1)) is None or not v.shape[0] or math.prod(v.shape) == 0:
        return
    n, scope = v.shape[0], Bodies(d).scope
    at = f"({Bodies(d).whole(scope)}) % {n}" + d.pick(["", f" - {n}"])
    texts = [f"ft.numpy.take({v.name}, {at}, axis=0)"]  # v may be a plain array
    if v.name.startswith("x"):
        texts += [f"{v.name}[{at}]", f"{v.name}[{at}, ...]", f"{v.name}[{at}, None]"]
    if v.dtype.kind == "f":
        texts += [f"ft.array({v.name}).at[{at}].set({v.name}[0])",
                  f"ft.array({v.name}).at[{at}].add({v.name}[-1])"]
    d.add(d.pick(texts), v.exact)


FLOW = [looped, looped, collected, branched, picked]
