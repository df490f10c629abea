"""Straight-line programs of a few numbers: stacks of polynomials, squared and added up.

Compiled for every processor this machine can stand for, and compared with their interpretation:

    python -m tests.fuzz.straight --count 1000 --seed 0 --target x86-64-v3 --kind Hessian
    python -m tests.fuzz.straight --count 100000 --in-turn

The second compiles each program for one processor, the processors in turn: 25 ms to draw and to
stage a program, 60 to 70 ms to compile and to compare it. ``--first`` goes on where a run ended.
``--slp`` and ``--contract`` compile as is not done any more, to see that the comparison bites.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Program, interpret
from functrans._compile.lowering.numbers import AS_NUMPY, Rounding
from functrans._compile.run.machine import LEVELS, OPTIONS, Machine, choose
from functrans._compile.run.native import NativeProgram
from functrans._compile.run.verify import difference

# What a processor must have for the code of a level.
NEEDED = {"x86-64": "sse2", "x86-64-v2": "sse4.2", "x86-64-v3": "fma", "x86-64-v4": "avx512vl"}
NUMBERS, TERMS, FACTORS = (3, 16), 3, (1, 3)
# How many polynomials are stacked: often 8, which fill a vector of 512 bits.
PARTS = (3, 4, 5, 6, 7, 8, 8, 8, 8)


def targets() -> list[str | None]:
    """The processors whose code runs here; None is this one."""
    import llvmlite.binding as llvm

    have = llvm.get_host_cpu_features()
    return [None, *[level for level in LEVELS if have.get(NEEDED[level])]]


# ---- drawing


def function(random: np.random.Generator) -> tuple[Callable, int, str]:
    """A drawn function of some numbers, how many, and its source."""
    n, body = (_moments if random.integers(2) else _polynomials)(random)
    source = "def f(x):\n" + "\n".join([f"    {line}" for line in body])
    scope: dict[str, Any] = {"np": np}
    exec(source, scope)
    return scope["f"], n, source


def _polynomials(random: np.random.Generator) -> tuple[int, list[str]]:
    """Sums of products of anything before."""
    n = int(random.integers(*NUMBERS, endpoint=True))
    names = [f"x{i}" for i in range(n)]

    def pick() -> str:
        return names[random.integers(len(names))]

    def factor() -> str:
        a, b = pick(), pick()
        forms = [a, a, a, f"({a} * {a} - {b} * {b})", f"({a} * {a} - 3 * {b} * {b})",
                 f"({a} + {b})", f"np.sqrt(1.0 + {a} * {a})", f"{a} / (2.0 + {b} * {b})"]
        return forms[random.integers(len(forms) - 2 * bool(random.integers(3)))]

    def term() -> str:
        factors = [factor() for _ in range(random.integers(*FACTORS, endpoint=True))]
        scale = ["", "", "2 * ", "3 * ", "0.5 * "][random.integers(5)]
        return scale + " * ".join(factors)

    lines, parts = [f"{', '.join(names)}, = x"], []
    for k in range(random.choice(PARTS)):
        total = term()
        for _ in range(random.integers(TERMS)):
            total += f" {'+-'[random.integers(2)]} {term()}"
        lines.append(f"p{k} = {total}")
        parts.append(f"p{k}")
        if not random.integers(3):
            names.append(f"p{k}")
    return n, [*lines, f"return np.sum(np.stack([{', '.join(parts)}]) ** 2)"]


# Moments of two complex numbers: sums of a + ic and b + id times powers of t + iv and u + iw. This
# is what LLVM got wrong first; of its variants it gets a quarter wrong.
MOMENTS = (
    ("a", "b"), ("c", "d"),
    ("t * a", "b", "-v * c", "-w * d"), ("v * a", "w * b", "t * c", "u * d"),
    ("a * (t * t - v * v)", "b * (u * u - w * w)", "-2 * c * t * v", "-2 * d * u * w"),
    ("c * (t * t - v * v)", "d", "2 * a * t", "b * u * w"),
    ("a * t * (t * t - 3 * v * v)", "b * u * (u * u - 3 * w * w)", "c * v * (v * v - 3 * t * t)",
     "d * (w * w)"),
    ("c * t * (t * t - 3 * v * v)", "d * u * (u * u - 3 * w * w)", "-a * v * (v * v - 3 * t * t)",
     "-b * w * (w * w - 3 * u * u)", "-9.48"),
)


def _moments(random: np.random.Generator) -> tuple[int, list[str]]:
    """The moments with some terms left out, turned around, or in another order."""
    rate = random.choice([0.02, 0.05, 0.2])
    rows = []
    for terms in MOMENTS:
        kept = [term for term in terms if random.random() >= rate] or ["a"]
        signs = [(term[0] == "-") != (random.random() < rate) for term in kept]
        order = range(len(kept)) if random.random() >= rate else random.permutation(len(kept))
        texts = [("- " if signs[i] else "+ ") + kept[i].removeprefix("-") for i in order]
        rows.append("    " + " ".join(texts).removeprefix("+ ") + ",")
    names = list("abcdtuvw")
    if random.integers(2):
        names = [names[i] for i in random.permutation(8)]
    return 8, [f"{', '.join(names)} = x", "return np.sum(np.stack([", *rows, "]) ** 2)"]


KINDS: dict[str, Callable] = {
    "value": lambda f: lambda x, v: f(x),
    "gradient": lambda f: lambda x, v: ft.grad(f)(x),
    "product": lambda f: lambda x, v: ft.hvp(f, x, v)[1],
    "Hessian": lambda f: lambda x, v: ft.hessian(f)(x),
}


class Case(NamedTuple):
    """A program with arguments."""

    kind: str
    program: Program
    args: list[np.ndarray]
    source: str


def cases(seed: int, count: int, kinds: Sequence[str] = tuple(KINDS), first: int = 0
          ) -> Iterator[Case]:
    """Drawn programs, of the kinds in turn."""
    for i in range(first, first + count):
        random = np.random.default_rng([seed, i])
        f, n, source = function(random)
        kind = kinds[i % len(kinds)]
        args = [random.standard_normal(n), random.standard_normal(n)]
        program = optimise(ft.make_program(KINDS[kind](f))(*args))
        yield Case(kind, program, args, f"# seed {seed}, {i}: {kind}\n{source}")


# ---- comparing


def wrong(case: Case, rounding: Rounding = AS_NUMPY) -> str | None:
    """What the code that is made now computes wrongly; None where it is right."""
    with ft.cache.off(), ft.config(verify=False):
        outputs = NativeProgram(case.program, rounding)(case.args)
    with np.errstate(all="ignore"):
        expected = interpret(case.program, case.args)
    if all(np.array_equal(y, e, equal_nan=True) for y, e in zip(outputs, expected, strict=True)):
        return None
    return difference(case.program, case.args, outputs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--target", choices=[*map(str, targets())])
    parser.add_argument("--kind", choices=[*KINDS], nargs="*", default=[*KINDS])
    parser.add_argument("--slp", action="store_true")
    parser.add_argument("--contract", action="store_true")
    given = parser.parse_args()
    OPTIONS["slp_vectorization"] = given.slp
    names = [t for t in targets() if given.target in (None, str(t))]
    made = {name: Machine(name) for name in names}
    failures, start = dict.fromkeys(names, 0), time.perf_counter()
    for i, case in enumerate(cases(given.seed, given.count, given.kind, given.first), given.first):
        for name in [names[i % len(names)]] if given.in_turn else names:
            with choose(made[name]):
                found = wrong(case, Rounding(contract=given.contract))
            if found is not None:
                failures[name] += 1
                print(f"{case.source}\n# {name}: {found}", flush=True)
    rate = given.count / (time.perf_counter() - start)
    print(f"{given.count} programs, wrong: {failures}, {rate:.2f} programs a second")


if __name__ == "__main__":
    main()
