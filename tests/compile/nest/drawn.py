"""Nests drawn at random: up to three loops deep, triangles, writes in place, views, branches."""

import random

import numpy as np

from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import (
    Entry,
    For,
    If,
    Let,
    Place,
    Store,
    Unproved,
)
from tests.compile.nest.examples import buffer, entry, scalar

N = 4
PROGRAMS = {}
FORMULAS = {
    0: [lambda dtype: lambda: np.array(0.5, dtype)],
    1: [
        lambda _: lambda a: np.sin(a),
        lambda _: lambda a: 0.7 * a,
        lambda _: lambda a: a * a,
        lambda _: lambda a: np.exp(-a * a),
    ],
    2: [
        lambda _: lambda a, b: a * b,
        lambda _: lambda a, b: a - 0.5 * b,
        lambda _: lambda a, b: a / (1.5 + b * b),
        lambda _: lambda a, b: np.sin(a) * b,
    ],
    3: [lambda _: lambda a, b, c: a * b + np.cos(c), lambda _: lambda a, b, c: a - b * c / 2],
}


class Drawn:
    """One nest; ``nest`` is what was drawn, ``args`` operands for it."""

    def __init__(self, seed, rules, dtype=float):
        self.rng, self.dtype = random.Random(seed), np.dtype(dtype)
        rng = self.rng
        self.x = buffer("x", N, dtype=dtype)
        self.y = buffer("y", N, N, dtype=dtype)
        self.s = buffer("s", dtype=dtype)
        self.t = buffer("t", N, dtype=dtype)
        self.at = buffer("at", N, dtype=int)
        self.rules = rules
        self.body, self.programs = (), PROGRAMS.setdefault(self.dtype, {})
        while len(self.body) < 3:
            self.grow(self.body, (), rng.randint(1, 3))
        self.operands = (self.x, self.y, self.at)
        outs = (self.x, self.y, self.s)
        self.nest = Nest("drawn", self.operands, outs, self.body, rules)
        values = np.random.default_rng(seed)

        def draw(*shape):
            v = values.normal(size=shape)
            if self.dtype.kind == "c":
                v = v + 1j * values.normal(size=shape)
            return v.astype(dtype)

        self.args = [draw(N), draw(N, N), values.integers(0, N, N)]

    def grow(self, body, loops, depth):
        """One more statement at the end of the nest, if that is allowed."""
        made = self.loop(loops, depth)
        try:
            Nest("trial", (), (), (*self.body, made), self.rules)
        except Unproved:
            return
        self.body = (*self.body, made)

    def loop(self, loops, depth):
        rng, i = self.rng, Index(f"i{len(loops)}")
        lo, hi = rng.choice([(0, N), (1, N), (0, N - 1)])
        lo, hi = Form(lo), Form(hi)
        if loops and rng.random() < 0.6:
            outer = Form.of(rng.choice(loops))
            lo, hi = rng.choice([(Form(0), outer), (outer + 1, Form(N)), (Form(0), outer + 1)])
        body, inside = [], (*loops, i)
        if rng.random() < 0.15:
            k = Index("d")
            body.append(
                Let(k, Place.of(self.at, self.place(self.at, inside)[1][0]), Form(0), Form(N))
            )
            inside = (*inside, k)
        body += [self.statement(inside, depth - 1) for _ in range(rng.randint(1, 3))]
        return For(i, lo, hi, tuple(body), rng.random() < 0.2)

    def statement(self, loops, depth):
        rng = self.rng
        if depth > 0 and rng.random() < 0.5:
            return self.loop(loops, depth)
        if rng.random() < 0.15:
            form = Form.of(rng.choice(loops)) - rng.randint(0, N)
            return If((form,), None, (self.entry(loops),), (self.entry(loops),))
        if rng.random() < 0.1:
            go = buffer("go", dtype=bool)
            test = (
                entry(Store.of(go), lambda a: (a * np.conj(a)).real > 0.3, self.load(loops, ()))
                if self.dtype.kind != "c"
                else entry(Store.of(go), lambda: np.array(True))
            )
            return If(
                (Form(0),),
                None,
                (test, If((), Place.of(go), (self.entry(loops),), (self.entry(loops),))),
            )
        return self.entry(loops)

    def place(self, b, indices):
        rng = self.rng
        at = []
        for _ in b.aval.shape:
            f = Form.of(rng.choice(indices)) if indices and rng.random() < 0.85 else Form(1)
            at.append(f + rng.choice([0, 0, 0, 1, -1]) if rng.random() < 0.5 else f)
        return b, tuple(at)

    def load(self, loops, axes):
        b = self.rng.choice([self.x, self.y, self.s, self.t])
        return Place(*self.place(b, (*loops, *axes)))

    def entry(self, loops):
        rng = self.rng
        axes = ()
        if rng.random() < 0.4:
            k = Index("a")
            n = Form(N) if rng.random() < 0.5 else Form.of(rng.choice(loops))
            axes = ((k, n),)
        indices = (*loops, *[v for v, _ in axes])
        loads = [self.load(loops, [v for v, _ in axes]) for _ in range(rng.randint(0, 3))]
        add = rng.random() < 0.4
        b = rng.choice([self.x, self.y, self.s, self.t])
        store = Store(*self.place(b, indices), add)
        n = rng.randrange(len(FORMULAS[len(loads)]))
        key = len(loads), n
        if key not in self.programs:
            f = FORMULAS[len(loads)][n](self.dtype)
            self.programs[key] = scalar(f, *[self.dtype] * len(loads))
        return Entry(axes, tuple(loads), self.programs[key], (store,))
