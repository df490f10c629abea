"""Draw errors at random, plant each in a copy of the checkout, and say which the tests catch.

    python -m tests.planted.drawn --count 300 --seed 1            over the whole package
    python -m tests.planted.drawn --count 20 --of functrans/_ops  in one part of it

An error changes one place: an operator, a comparison, a constant, a term left out, two arguments
swapped, a condition removed. The tests that run its line are run, the most particular first; which
they are is noted beforehand by ``python -m tests.planted.guards``. Lines that no test runs count as
survivors. The errors that survive are printed with file, line and both texts.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.planted.__main__ import ROOT, copied, planted
from tests.planted.error import Planted
from tests.planted.guards import Guards

# Tests that are run for an error, and seconds that they may take.
TESTS, TIMEOUT = 30, 240
AREAS = ("_ops", "_core", "_kernels", "_compile", "_transforms", "numpy", "scipy", "numba", "torch")
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


class Mutant(NamedTuple):
    """One place of a file, and the text that takes its place."""

    file: str
    line: int
    kind: str
    start: int
    stop: int
    old: str
    new: str

    def in_source(self, source: str) -> str:
        """The source with the error in it."""
        octets = source.encode()
        return (octets[: self.start] + self.new.encode() + octets[self.stop :]).decode()


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
    tree = ast.parse(source)
    for node in _changeable(tree):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = source.encode()[start:stop].decode()
        for kind, new in _changes(node):
            yield Mutant(file, node.lineno, kind, start, stop, old, f"({ast.unparse(new)})")


def _changeable(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that run, but for annotations, messages and docstrings."""
    if isinstance(node, SKIPPED) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "keywords", "decorator_list"):
            value = [k.value for k in value] if name == "keywords" else ()
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST):
                yield from _changeable(child)


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
            if plain and not (isinstance(func, ast.Name) and func.id == "isinstance"):
                yield "swapped arguments", ast.Call(func, [second, first, *others], keywords)


def _is_text(x: ast.expr) -> bool:
    return isinstance(x, ast.Constant) and isinstance(x.value, str)


def draw(count: int, seed: int, part: str) -> list[Mutant]:
    """Errors in all areas alike, never two on one line."""
    source = random.Random(seed)
    areas = [part] if part else [f"functrans/{area}" for area in AREAS]
    every = {area: [m for path in sorted(_files(area)) for m in _of_file(path)] for area in areas}
    chosen: list[Mutant] = []
    lines = set()
    while len(chosen) < count and any(every.values()):
        area = areas[len(chosen) % len(areas)]
        if not every[area]:
            areas.remove(area)
            continue
        kind = source.choice(sorted({m.kind for m in every[area]}))
        mutant = source.choice([m for m in every[area] if m.kind == kind])
        every[area].remove(mutant)
        if (mutant.file, mutant.line) not in lines:
            lines.add((mutant.file, mutant.line))
            chosen.append(mutant)
    return chosen


def _files(part: str) -> list[Path]:
    path = ROOT / part
    return [path] if path.is_file() else list(path.rglob("*.py"))


def _of_file(path: Path) -> list[Mutant]:
    return list(mutants(path.relative_to(ROOT).as_posix(), path.read_text()))


def selected(guards: Guards, mutant: Mutant) -> list[str]:
    """The tests that run a line, those that run the least else first."""
    by_line = guards.by_line(mutant.file)
    tests = by_line.get(mutant.line, [])
    lines = Counter(t for names in by_line.values() for t in names)
    files = Counter(t.split("::")[0] for t in tests)
    return sorted(tests, key=lambda t: (files[t.split("::")[0]] > 50, -lines[t], t))[:TESTS]


def verdict(folder: Path, mutant: Mutant, tests: Sequence[str]) -> str:
    """Whether the tests fail with the error: caught, survives, or not run."""
    if not tests:
        return "NOT RUN"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider",
               "--tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with planted(folder, _Planted(mutant)):
        try:
            done = subprocess.run(command, cwd=folder, env=environment, timeout=TIMEOUT, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired:
            return "caught (hangs)"
    return "SURVIVES" if done.returncode == 0 else "caught"


def main(argv: Sequence[str]) -> int:
    """Plant the errors that are drawn; 0 if at most one in twenty survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", default="", help="a file or folder of the package")
    parser.add_argument("--every", type=int, default=1, help="take each such one of the errors")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    options = parser.parse_args(argv)
    guards = Guards()
    chosen = draw(options.count, options.seed, options.of)[options.first :: options.every]
    found = Counter()
    with copied() as folder:
        for k, m in enumerate(chosen):
            begun = time.perf_counter()
            said = verdict(folder, m, selected(guards, m))
            found[said.split()[0]] += 1
            print(f"{k:4} {said:15}{m.file}:{m.line} {m.kind}: {' '.join(m.old.split())} -> {m.new}"
                  f"  ({time.perf_counter() - begun:.0f} s)", flush=True)
    print(f"{found['caught']} of {len(chosen)} caught, {found['SURVIVES']} survive, "
          f"{found['NOT']} on lines that no test runs")
    return 0 if 20 * (len(chosen) - found["caught"]) <= len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
