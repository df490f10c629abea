"""Draw errors at random, plant each in a copy of the checkout, and say which the tests catch.

    python -m tests.planted.drawn --count 300 --seed 1            over the whole package
    python -m tests.planted.drawn --count 20 --of functrans/_ops  in one part of it

An error changes one place: an operator, a comparison, a constant, a term left out, two arguments
swapped, a condition removed. The tests that run its line are run, the short and particular first;
which they are is noted beforehand by ``python -m tests.planted.guards``. Each error is printed with
file, line, both texts and the test that fails, which counts only if it passes without the error.
Lines that no test runs count as survivors; the errors of ``tests.planted.equivalent``, which change
nothing, are not drawn.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.planted.__main__ import ROOT, copied, planted, run
from tests.planted.equivalent import EQUIVALENT
from tests.planted.error import Planted
from tests.planted.guards import Guards, Lines
from tests.planted.processes import FAILED, UNFIT, Functions, Session

# Seconds after which tests hang.
TIMEOUT = 300
# What errors are drawn from alike: rules, interpreters, the compiler, jit, and those who use them.
JIT = "functrans/_transforms/staging"
AREAS = (
    ("functrans/_ops", "functrans/_kernels"), ("functrans/_core", "functrans/_transforms"),
    ("functrans/_compile",), (JIT,), ("functrans/numpy",), ("functrans/scipy",),
    ("functrans/numba",), ("functrans/torch",),
)
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}
# What changes no behaviour, or only what an error says.
SKIPPED = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)
# Functions that have the same result with their first two arguments swapped.
COMMUTES = frozenset((
    "isinstance", "add", "mul", "multiply", "maximum", "minimum", "max", "min", "logical_and",
    "logical_or", "equal", "not_equal", "array_equal", "may_share_memory", "gcd", "lcm", "hypot",
    "logaddexp",
))


class Mutant(NamedTuple):
    """One place of a file, and the text that takes its place.

    Its lines are those of the expression, of the one around it, and so on to the statement.
    """

    file: str
    lines: Lines
    kind: str
    start: int
    stop: int
    old: str
    new: str

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.lines[0][0]

    def in_source(self, source: str) -> str:
        """The source with the error in it."""
        octets = source.encode()
        lines = "\n" * (self.old.count("\n") - self.new.count("\n"))  # the others keep their places
        new = f"{self.new[:-1]}{lines})".encode()
        return (octets[: self.start] + new + octets[self.stop :]).decode()


class _Planted(Planted):
    """A mutant as a planted error."""

    __slots__ = ("mutant",)

    def __init__(self, mutant: Mutant):
        super().__init__(mutant.kind, mutant.file, mutant.old, mutant.new)
        self.mutant = mutant

    def planted_in(self, sound: str) -> str:
        return self.mutant.in_source(sound)


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """Every error that can be drawn in a file."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, around in _changeable(ast.parse(source), ()):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = source.encode()[start:stop].decode()
        for kind, new in _changes(node):
            yield Mutant(file, around, kind, start, stop, old, f"({ast.unparse(new)})")


def _changeable(node: ast.AST, around: Lines) -> Iterator[tuple[ast.expr, Lines]]:
    """The expressions that run, but for annotations, messages and docstrings."""
    if isinstance(node, SKIPPED) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.stmt):  # of one with a body, what stands before it
        body = getattr(node, "body", ())
        last = body[0].lineno - 1 if body else node.end_lineno
        around = ((node.lineno, max(node.lineno, last or 0)),)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "keywords", "decorator_list"):
            value = [k.value for k in value] if name == "keywords" else ()
        for child in value if isinstance(value, (list, tuple)) else (value,):
            inner = around
            if isinstance(child, ast.expr):
                inner = ((child.lineno, child.end_lineno or child.lineno), *around)
                yield child, inner
            if isinstance(child, ast.AST):
                yield from _changeable(child, inner)


def _changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What may stand in the place of an expression."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=right) if type(op) in COMPARISONS:
            yield "comparison", ast.Compare(left, [COMPARISONS[type(op)]()], right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            if not any(_is_text(x) for x in (left, right)):
                yield "operator", ast.BinOp(left, OPERATORS[type(op)](), right)
            if isinstance(op, (ast.Add, ast.Sub)):
                yield "dropped term", left
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            whole = isinstance(value, int) or not value
            yield "constant", ast.Constant(value + 1 if whole else value * 1.5)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield "dropped sign", operand
        case ast.BoolOp(op=op, values=values):
            yield "logic", ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
            yield "removed condition", ast.BoolOp(op, values[:-1]) if values[2:] else values[0]
            yield "removed condition", ast.BoolOp(op, values[1:]) if values[2:] else values[1]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "swapped branches", ast.IfExp(test, orelse, body)
        case ast.Call(func=func, args=[first, second, *others], keywords=keywords):
            plain = not any(isinstance(a, ast.Starred) for a in (first, second))
            if plain and ast.unparse(func).rsplit(".", 1)[-1] not in COMMUTES:
                yield "swapped arguments", ast.Call(func, [second, first, *others], keywords)


def _is_text(x: ast.expr) -> bool:
    return isinstance(x, ast.Constant) and isinstance(x.value, str)


def draw(count: int, seed: int, part: str) -> list[Mutant]:
    """Errors in all areas alike, never two on one line."""
    source = random.Random(seed)
    areas = [[m for path in _files(area) for m in _of_file(path)]
             for area in ([(part,)] if part else AREAS)]
    chosen: list[Mutant] = []
    lines = set()
    while len(chosen) < count and (areas := [every for every in areas if every]):
        every = areas[len(chosen) % len(areas)]
        kind = source.choice(sorted({m.kind for m in every}))
        mutant = source.choice([m for m in every if m.kind == kind])
        every.remove(mutant)
        if (mutant.file, mutant.line) not in lines:
            lines.add((mutant.file, mutant.line))
            chosen.append(mutant)
    return chosen


def _files(area: tuple[str, ...]) -> list[Path]:
    """The sources of an area; jit's are an area of their own."""
    found = {p for a in area for p in (ROOT / a).rglob("*.py")}
    found |= {ROOT / a for a in area if a.endswith(".py")}
    return sorted(found.difference((ROOT / JIT).rglob("*.py") if len(area) > 1 else ()))


def _of_file(path: Path) -> list[Mutant]:
    file = path.relative_to(ROOT).as_posix()
    same = {(old, new) for old, new, _ in EQUIVALENT.get(file, ())}
    return [m for m in mutants(file, path.read_text()) if (_flat(m.old), m.new) not in same]


def _flat(text: str) -> str:
    return " ".join(text.split())


class Trials:
    """Errors that are planted, one after the other, in a session of the tests that guard them."""

    def __init__(self, chosen: Sequence[Mutant]):
        self.guards, self.found = Guards(), Counter[str]()
        self.tests = {m: self.guards.selected(m.file, m.lines) for m in chosen}
        self.sound: dict[str, bool] = {}

    def run(self):
        """Plant them all."""
        files = sorted({t.split("::")[0] for tests in self.tests.values() for t in tests})
        with copied() as self.folder:
            pytest.main(["-qq", "-s", "-n", "0", "-p", "no:cacheprovider", *files],
                        plugins=[Session(self._work)])

    def _work(self, session: Session):
        self.session, self.functions = session, Functions(ROOT / "functrans")
        for m, tests in self.tests.items():
            begun = time.perf_counter()
            said, test = self._verdict(m, tests)
            self.found[said.split()[0]] += 1
            print(f"{said:17}{m.file}:{m.line} {m.kind}: {_flat(m.old)} -> {_flat(m.new)}"
                  f"  [{test}; {time.perf_counter() - begun:.0f} s]", flush=True)

    def _verdict(self, mutant: Mutant, tests: Sequence[str]) -> tuple[str, str]:
        """Whether tests fail with an error, caught, survives or not run, and the first of them."""
        while tests:
            said, test = self._failing(mutant, tests)
            if said != "caught" or self._passes(test):
                return said, test
            tests = [t for t in tests if t != test.split("[")[0]]
        return "NOT RUN", ""

    def _failing(self, mutant: Mutant, tests: Sequence[str]) -> tuple[str, str]:
        path = ROOT / mutant.file
        source = mutant.in_source(path.read_text())
        code, test = self.session.run(
            tests, TIMEOUT, lambda: self.functions.replace(path, source))
        if code is None:
            ends = self.session.run(tests, TIMEOUT, lambda: None)[0] is not None
            return "caught (hangs)" if ends else "UNKNOWN: hangs without it", test
        if code not in (0, UNFIT):
            return ("caught", test) if code == FAILED else ("caught (crashes)", test)
        if code == UNFIT or self.guards.is_run_at_import(mutant.file, mutant.lines):
            with planted(self.folder, _Planted(mutant)):
                code, output = run(self.folder, ["-n", "0", *tests], TIMEOUT)
            if code:
                return "caught", "".join(re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.M)[:1])
        return "SURVIVES", ""

    def _passes(self, test: str) -> bool:
        """Whether a test passes without an error."""
        if test not in self.sound:
            self.sound[test] = not test or self.session.passes(test, TIMEOUT)
        return self.sound[test]


def main(argv: Sequence[str]) -> int:
    """Plant the errors that are drawn; 0 if at most one in twenty survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", default="", help="a file or folder of the package")
    parser.add_argument("--every", type=int, default=1, help="take each such one of the errors")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    options = parser.parse_args(argv)
    trials = Trials(draw(options.count, options.seed, options.of)[options.first :: options.every])
    trials.run()
    found, total = trials.found, len(trials.tests)
    print(f"{found['caught']} of {total} caught, {found['SURVIVES']} survive, "
          f"{found['NOT']} on lines that no test runs")
    return 0 if 20 * (total - found["caught"]) <= total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
