"""Drawn functions with loops, whose source is there, for loops that are staged as loops.

``python -m tests.fuzz.from_source FIRST COUNT`` draws more of them than the tests do.
"""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
import functrans.numpy as fnp
from functrans._transforms.staging import loops

N = 6
HELPERS = """
def bump(v, k, y):
    v[k] = 0.5 * v[k] + y
    return v[k] * 0.3

def mix(y, z):
    w = 0.5 * y
    for q in range(3):
        w = w + 0.1 * np.sin(z) * q
    return w
"""


class Case(NamedTuple):
    """A function, its text, and arguments."""

    f: Callable
    reference: Callable
    source: str
    args: list[np.ndarray]


class Loop(NamedTuple):
    """A name of an index, and the least and the greatest that it is, exclusive."""

    name: str
    low: int
    high: int


class Drawing:
    """Draws the lines of a function of two vectors and a matrix."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def index(self, around: list[Loop]) -> str:
        r = self.r
        if around and r.random() < 0.8:
            v = r.choice(around)
            c = r.randint(-v.low, N - v.high)
            if r.random() < 0.1:
                return f"{v.name} - {v.high}"  # from the end
            return f"{v.name} + {c}" if c > 0 else f"{v.name} - {-c}" if c else v.name
        return str(r.randrange(-2, N))

    def vector(self) -> str:
        return self.r.choice("ab")

    def term(self, around: list[Loop], depth: int = 0) -> str:
        r, k = self.r, self.r.randrange(9 if depth < 2 else 5)
        at = self.index
        if k < 2:
            return f"{self.vector()}[{at(around)}]"
        if k == 2:
            return f"M[{at(around)}, {at(around)}]"
        if k == 3:
            return r.choice(["s", "t", "0.7"])
        if k == 4 and around:
            return f"0.1 * {r.choice(around).name}"
        if k == 5 and around:
            v = r.choice(around).name
            return f"(M[{at(around)}, :{v}] @ {self.vector()}[:{v}])"
        if k == 6 and around:
            v = r.choice(around).name
            return f"np.sum(M[{v}:, {at(around)}] * {self.vector()}[{v}:])"
        if k == 7:
            return f"mix({self.term(around, 2)}, {self.term(around, 2)})"
        return f"np.{r.choice(['sin', 'tanh', 'cos'])}({self.term(around, depth + 1)})"

    def expression(self, around: list[Loop]) -> str:
        t, op = self.term, self.r.choice("+-*")
        return f"0.4 * {t(around)} {op} 0.3 * {t(around)} + 0.2 * {t(around)}"

    def part(self, around: list[Loop], n: int) -> str:
        k = self.r.randint(0, N - n)
        row = f"M[{self.index(around)}, {k}:{k + n}]"
        column = f"M[{k}:{k + n}, {self.index(around)}]"
        back = f"{self.vector()}[{k}:{k + n}][::-1]"
        return self.r.choice([row, column, back, f"{self.vector()}[{k}:{k + n}]"])

    def bounds(self, around: list[Loop]) -> tuple[str, int, int]:
        r = self.r
        if around and r.random() < 0.6:
            v = r.choice(around)
            return r.choice([
                (f"range({v.name})", 0, v.high), (f"range({v.name}, {N})", v.low, N),
                (f"range({v.name} + 1, {N})", v.low + 1, N),
                (f"range({v.name} - 1, -1, -1)", 0, v.high), ])
        low, high = sorted(r.sample(range(N + 1), 2))
        return r.choice([
            (f"range({low}, {high})", low, high), (f"range({high - 1}, {low - 1}, -1)", low, high),
            ("range(len(a))", 0, N), (f"range({low}, {high}, 2)", low, high)])

    def loop(self, depth: int, around: list[Loop], pad: str) -> None:
        v, r = self.name("i"), self.r
        text, low, high = self.bounds(around)
        if low >= high:
            return
        k = r.random()
        if k < 0.1:
            x = self.name("x")
            self.lines.append(f"{pad}for {v}, {x} in enumerate(a):")
            self.lines.append(f"{pad}    s = 0.9 * s + 0.01 * {x}")
            low, high = 0, N
        elif k < 0.2:
            x, y = self.name("x"), self.name("y")
            self.lines.append(f"{pad}for {v}, ({x}, {y}) in zip(range({N}), zip(b, M)):")
            self.lines.append(f"{pad}    s = 0.9 * s + 0.01 * {x} + 0.01 * np.sum({y})")
            low, high = 0, N
        else:
            self.lines.append(f"{pad}for {v} in {text}:")
            self.lines.append(f"{pad}    s = 0.9 * s + 0.01")
        self.block(depth + 1, [*around, Loop(v, low, high)], pad + "    ")

    def branch(self, depth: int, around: list[Loop], pad: str) -> None:
        r, v = self.r, self.r.choice(around)
        test = r.choice([
            f"{self.vector()}[{self.index(around)}] > 0.1", f"{v.name} == {r.randrange(N)}",
            f"{v.name} > {r.randrange(N)}", f"{v.name} % 2", f"s > t and {v.name} < {N - 2}"])
        self.lines.append(f"{pad}if {test}:")
        if r.random() < 0.2:
            self.lines.append(f"{pad}    t = 0.5 * t")
            self.lines.append(f"{pad}    continue")
            return
        self.statement(depth, around, pad + "    ")
        if r.random() < 0.6:
            self.lines.append(f"{pad}else:")
            self.statement(depth, around, pad + "    ")

    def statement(self, depth: int, around: list[Loop], pad: str) -> None:
        r, add, x = self.r, self.lines.append, self.expression(around)
        at = self.index(around)
        k = r.randrange(10)
        if k < 3:
            add(f"{pad}{r.choice('st')} {r.choice(['=', '=', '+=', '*='])} {x}")
        elif k < 6:
            target = r.choice([f"{self.vector()}[{at}]", f"M[{at}, {self.index(around)}]"])
            add(f"{pad}{target} {r.choice(['=', '=', '-=', '*='])} {x}")
        elif k == 6:
            n = r.randint(2, N - 1)
            x, y, z = (self.part(around, n) for _ in range(3))
            add(f"{pad}{x} {r.choice(['=', '+='])} 0.4 * {y} - 0.3 * np.sin({z})")
        elif k == 7:
            v = self.name("v")
            add(f"{pad}{v} = M[{at}]")
            add(f"{pad}{v}[{self.index(around)}] = {x}")
            add(f"{pad}s = s + 0.2 * {v}[{self.index(around)}]")
        elif k == 8:
            add(f"{pad}t = {self.term(around)} + bump({self.vector()}, {at}, {self.term(around)})")
        else:
            add(pad + r.choice(["a = 0.9 * a + 0.1 * b", "a, b = b, a", "c = 0.5 * a + c", "k += 1",
                                "b = a"]))

    def block(self, depth: int, around: list[Loop], pad: str) -> None:
        for _ in range(self.r.randint(1, 3)):
            k = self.r.random()
            if k < 0.4 and depth < 3:
                self.loop(depth, around, pad)
            elif k < 0.55 and around:
                self.branch(depth, around, pad)
            else:
                self.statement(depth, around, pad)

    def function(self, most: int) -> str:
        """The text of a function with so many loops that are in no other."""
        begin = ["a, b, M = a.copy(), b.copy(), M.copy()", "s, t, k, c = 0, a[0] * b[1], 0, b"]
        self.lines += [f"    {line}" for line in begin]
        for _ in range(self.r.randint(1, most)):
            self.loop(0, [], "    ")
        sums = " + ".join([f"np.sum({x} * {x})" for x in ("a", "b", "M", "c")])
        self.lines.append(f"    return s + t + k + {sums}")
        return "\n".join(["def f(a, b, M):", *self.lines, ""])


def cases(first: int, count: int, most: int = 3) -> Iterator[Case]:
    for seed in range(first, first + count):
        source = HELPERS + Drawing(seed).function(most)
        rng = np.random.default_rng(seed)
        args = [rng.normal(size=N), rng.normal(size=N), rng.normal(size=(N, N))]
        yield Case(_made(source, seed, fnp), _made(source, seed, np), source, args)


def _made(source: str, seed: int, names: Any) -> Callable:
    """The function of a text, with ``names`` as ``np``."""
    file = f"<drawn loops {seed}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    scope = {"np": names, "__name__": "drawn_loops"}
    exec(compile(source, file, "exec"), scope)
    return scope["f"]  # type: ignore[return-value]  # a function


def wrong(case: Case, second: bool = True) -> str | None:
    """What is not as plain Python has it."""
    args, f = case.args, case.f
    with np.errstate(all="ignore"):
        expected = case.reference(*args)
    if not np.isfinite(expected) or abs(expected) > 1e6:
        return None
    directions = tuple([np.cos(x) for x in args])

    def derivatives(*args: Any) -> Any:
        value, gradient = ft.value_and_grad(f, argnums=(0, 1, 2))(*args)
        return value, gradient, ft.hvp(f, args, directions)[1] if second else ()

    y, *found = ft.tree.leaves(ft.jit(derivatives)(*args))
    if abs(y - expected) > 1e-10 * (1 + abs(expected)):
        return f"value {y!r}, not {expected!r}"
    _, *wanted = ft.tree.leaves(derivatives(*args))
    for k, (g, w) in enumerate(zip(found, wanted, strict=True)):
        if not np.allclose(g, w, rtol=1e-7, atol=1e-8 * (1 + np.max(np.abs(w)))):
            return f"derivative {k} {g!r}, not {w!r}"
    return None


def main(first: int, count: int) -> int:
    loops.MANY = 0
    bad = 0
    for seed, case in enumerate(cases(first, count), first):
        try:
            found = wrong(case)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            bad += 1
            print(f"{case.source}# {seed}: {found}\n", flush=True)
    print(f"{count} functions, {bad} wrong")
    return bad


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
