"""Drawn functions with Python loops that are long enough to be rolled up, compiled and by NumPy.

Bodies carry numbers and vectors, read and write entries, rows and slices at places that go up or
down with the counter or start at an integer of the caller's, and hold loops themselves. All they
compute is rounded once, so values must be the same to the last bit; gradients within rounding.

    python -m tests.fuzz.rolled --count 100 --seed 0
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
import functrans.numpy as fnp
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling import pieces

N, M = 40, 5  # entries of vectors, columns of the matrix
# Equations from which on a program is rolled, here.
LEAST = 60
RTOL = 1e-11  # gradients add up in another order, over 40 steps


class Case(NamedTuple):
    """A function as text, and arguments: a vector, a matrix, two numbers and an integer."""

    source: str
    args: tuple

    def function(self, numpy: Any) -> Callable:
        scope: dict[str, Any] = {"np": numpy}
        exec(self.source, scope)
        return scope["f"]


class Drawer:
    """Draws one function."""

    def __init__(self, seed: int, guards: bool = False):
        self.random = random.Random(seed)
        self.guards = guards
        self.numbers = ["s", "t"]
        self.vectors = ["v"]
        self.count = 0

    def pick(self, *xs: Any) -> Any:
        return self.random.choice(xs)

    def place(self, i: str) -> str:
        """Where an entry of a vector stands, in pass ``i`` from 1 to N - 2."""
        return self.pick(i, i, f"{i} - 1", f"{i} + 1", f"{N} - 1 - {i}", f"-{i}", "0", "3",
                         f"{i} % 7", f"k + {i} % 3")

    def number(self, i: str, j: str | None) -> str:
        """A number to read."""
        entries = [f"x[{self.place(i)}]", f"y[{self.place(i)}]", f"a[{self.place(i)}, 2]",
                   f"v[{self.pick(0, -1, 1)}]", f"b[{i} % 4, {self.pick(0, 1)}]"]
        if j is not None:
            entries += [f"a[{i}, {j}]", f"a[{self.place(i)}, {M} - 1 - {j}]", f"v[{j} % 3]"] * 2
        return self.pick(*self.numbers, *self.numbers, *entries, "0.5", f"(0.1 * {j or i})")

    def formula(self, one: str, other: str) -> str:
        """Between -1 and 1 about where both are, so that long loops stay finite."""
        return self.pick(
            f"0.5 * {one} + 0.25 * {other}", f"{one} / (1.5 + {other} * {other})",
            f"np.sqrt(0.25 + {one} * {one}) - {other} * 0.5", f"np.maximum({one}, {other}) * 0.75",
            f"np.where({one} > {other}, {one} * 0.5, -{other})", f"0.5 * ({one} - {other})",
            f"np.abs({one}) * 0.5 - 0.25", f"{one} * {other}",
        )

    def vector(self, i: str) -> str:
        """A vector of three entries."""
        start = self.pick(i, f"{N} - 3 - {i}", "1", "k", f"k + {i} % 4")
        return self.pick("v", "v", "v[::-1]", f"x[{start} % {N - 3}:{start} % {N - 3} + 3]"
                         if "k" not in start else f"x[{start}:{start} + 3]",
                         f"a[{self.place(i)}, 1:4]", f"a[{i}, :3]", "b[:3, 1]")

    def statements(self, i: str, j: str | None, depth: int) -> list[str]:
        lines = []
        for _ in range(self.random.randint(1, 4 if depth else 3)):
            value = self.formula(self.number(i, j), self.number(i, j))
            kind = self.random.randint(0, 9)
            if kind < 4:
                lines.append(f"{self.pick(*self.numbers)} = {value}")
            elif kind < 6:
                target = self.pick(f"y[{self.place(i)}]", f"y[{i}]", f"b[{i} % 4, 1]", "b[2, 0]")
                lines.append(f"{target} {self.pick('=', '=', '+=', '*=')} {value}")
            elif kind == 6 and self.random.randint(0, 1):
                lines.append(self.square(i))
            elif kind == 6:
                lines.append(f"v = {self.formula(self.vector(i), self.pick(self.vector(i), 's'))}")
            elif kind == 7 and depth:
                inner = f"j{self.count}"
                self.count += 1
                lines.append(f"for {inner} in range({self.pick(M, M, 3, 4)}):")
                lines += indented(self.statements(i, inner, 0))
            elif kind == 8 and depth and not self.random.randint(0, 2):
                lines.append(f"if {i} % {self.pick(2, 3)} == 0:")
                lines.append(f"    {self.pick(*self.numbers)} = {value}")
            elif kind == 9 and self.guards:
                lines += self.guarded(i, j)
            else:
                start = self.pick(i, f"{N} - 3 - {i}", "k", "0")
                part = f"y[{start}:{start} + 3]"
                lines.append(f"{part} = {self.formula(part, self.pick('v', 's'))}")
        return lines

    def square(self, i: str) -> str:
        """All of a matrix anew, from rows and columns of it, and not 0: maxima of zeros may have
        either sign."""
        places = [self.pick(f"{i} % 8", f"7 - {i} % 8", "2", f"{i} // 8") for _ in range(2)]
        rows = [f"m[{places[0]}]", f"m[:, {places[1]}][:, None]"]
        other = self.formula(*self.pick(rows, rows[::-1], [rows[0], "s"]))
        value = f"0.1 + 0.5 * ({self.formula('m', other)})"
        return self.pick(f"m = {value}", f"m = {value}", f"m[:] = {value}")

    def guarded(self, i: str, j: str | None) -> list[str]:
        """What Python decides by computed values."""
        name = self.pick(*self.numbers)
        test = self.pick("{} > 0.1", "np.abs({}) < 0.4", "{} < x[3]")
        test = test.format(self.number(i, j))
        value = self.formula(self.number(i, j), self.number(i, j))
        return self.pick([f"if {test}:", f"    {name} = {value}"],
                         [f"if {test}:", f"    {name} = {value}", "else:", f"    y[{i}] = {name}"],
                         [f"{name} = {value}", f"while np.abs({name}) > 0.3:",
                          f"    {name} = {name} * 0.75"])

    def case(self) -> Case:
        lines = ["y = np.zeros(40)", "b = np.zeros((4, 2)) + 0.5", "v = x[:3]",
                 "m = np.outer(x[:8], x[8:16])"]
        for _ in range(self.random.randint(1, 2)):
            passes = self.pick(f"range(1, {N - 2})", f"range({N - 3}, 0, -1)",
                               f"range(1, {N - 2}, 2)", "range(3, 33)")
            lines += [f"for i in {passes}:", *indented(self.statements("i", None, 1))]
        lines.append("return s + t, y * 1.0, v * 1.0, b * 1.0, m * 1.0")
        source = "\n".join(["def f(x, a, s, t, k):", *indented(lines), ""])
        numbers = np.random.default_rng(self.random.randint(0, 2**31))
        x, a = numbers.uniform(-1, 1, N), numbers.uniform(-1, 1, (N, M))
        return Case(source, (x, a, numbers.uniform(), numbers.uniform(), self.random.randint(0, 9)))


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def cases(seed: int, count: int, guards: bool = False) -> Iterator[Case]:
    for i in range(count):
        yield Drawer(seed * 1_000_003 + i, guards).case()


def loss(f: Callable) -> Callable:
    """The outputs of ``f`` as one number, each entry with a weight."""

    def total(*args: Any) -> Any:
        return sum([fnp.sum(y * np.cos(np.arange(y.size)).reshape(y.shape)) for y in f(*args)])

    return total


def loops(compiled: Callable, args: tuple) -> int:
    """The loops of a program that was compiled."""
    program = compiled.lower(*args).entry.executable.program
    return sum([isinstance(eqn.prim, Loop) for eqn in program.eqns])


def wrong(case: Case, gradients: bool = True) -> tuple[str | None, int]:
    """How compiled code differs from NumPy's result; and how many loops it has."""
    f, plain = case.function(fnp), case.function(np)
    compiled = ft.jit(f, precise=True)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = plain(*case.args)
        got, count = compiled(*case.args), loops(compiled, case.args)
        again = compiled(*case.args)
        for n, (e, *ys) in enumerate(zip(expected, got, again, strict=True)):
            for y in ys:
                if np.asarray(y).tobytes() != np.asarray(e).tobytes():
                    return f"output {n}: {y} instead of {e}", count
        if gradients:
            derivative = ft.grad(loss(f), (0, 1, 2, 3))
            with ft.config(jit=False):
                expected = derivative(*case.args)
            made = ft.jit(derivative, precise=True)
            for n, (e, y) in enumerate(zip(expected, made(*case.args), strict=True)):
                scale = np.max(np.abs(e), initial=1e-3)
                if not np.allclose(y, e, rtol=RTOL, atol=RTOL * scale, equal_nan=True):
                    return f"gradient {n}: {y} instead of {e}", count
            count += loops(made, case.args)
    return None, count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guards", action="store_true", help="Python decides by values, too")
    parser.add_argument("--values", action="store_true", help="no gradients")
    given = parser.parse_args()
    pieces.LEAST = LEAST
    failures = total = rolled = 0
    for i, case in enumerate(cases(given.seed, given.count, given.guards)):
        try:
            found, count = wrong(case, not given.values)
        except Exception as error:  # which any drawn program may show
            found, count = f"{type(error).__name__}: {error}", 0
        total, rolled = total + count, rolled + bool(count)
        if found is not None:
            failures += 1
            print(f"# seed {given.seed}, {i}\n{case.source}# {found}\n", flush=True)
    print(f"{given.count} functions, {rolled} with loops, {total} loops, {failures} wrong")


if __name__ == "__main__":
    main()
