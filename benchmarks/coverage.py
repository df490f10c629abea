"""Which of NumPy's calls have derivatives, and whether they are right: writes docs/coverage.md.

    python -m benchmarks.coverage               # all installed libraries; writes the page
    python -m benchmarks.coverage --peers functrans --match np.linalg

The calls are the lines of ``calls.txt``. Each is differentiated in forward and reverse mode, to
second order by forward over reverse, under vmap and under jit. The references are numbers: NumPy's
own function, moved a little (``functrans.testing.numerical_jvp``: extrapolated differences, and the
complex step where it agrees with them).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
from functrans.testing import numerical_jvp

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "coverage.md"
MODES = ("forward", "reverse", "second", "vmap", "jit")
RIGHT, CONSTANT, RENAMED = "yes", "constant", "by the library's own name"
NONE = "no such transform"


class Call(NamedTuple):
    """A line of the list: an expression of ``np`` and of the variables below."""

    topic: str
    text: str

    @property
    def variables(self) -> list[str]:
        return [n for n in VARIABLES if re.search(rf"\b{n}\b", self.text)]


def calls() -> list[Call]:
    """The list, in its order."""
    found, topic = [], ""
    for line in (HERE / "calls.txt").read_text().splitlines():
        if line.startswith("## "):
            topic = line[3:]
        elif line and not line.startswith("#"):
            found.append(Call(topic, line))
    return found


def _spread(shape: tuple[int, ...], low: float, high: float, seed: int) -> np.ndarray:
    """Distinct entries between two bounds, in an order that is anything but sorted."""
    n = int(np.prod(shape))
    values = np.linspace(low, high, n) if n > 1 else np.array([(low + high) / 2])
    return np.random.default_rng(seed).permutation(values).reshape(shape)


VARIABLES: dict[str, np.ndarray] = {
    "v": _spread((5,), 0.17, 0.86, 1),
    "u": _spread((5,), 0.12, 0.81, 2),
    "m": _spread((3, 4), 0.11, 0.88, 3),
    "p": _spread((3, 4), 0.13, 0.84, 4),
    "k": _spread((3, 3), 0.11, 0.87, 5) + np.diag([1.0, 2.0, 3.0]),
    "t": _spread((2, 3, 4), 0.11, 0.88, 6),
    "c": np.array(0.63),
    "z": _spread((4,), 0.2, 0.8, 7) + 1j * _spread((4,), 0.1, 0.9, 8),
    "h": _spread((3, 3), 0.1, 0.9, 9) + 1j * _spread((3, 3), 0.1, 0.9, 10) + 2 * np.eye(3),
}
CONSTANTS = {
    "i": np.array([2, 0, 1]),
    "j": np.array([1, 4, 1, 0, 2]),
    "b": np.array([True, False, True, True, False]),
    "q": np.arange(12).reshape(3, 4) % 3 != 1,
    "w": np.array([0.1, 0.3, 0.2, 0.25, 0.15]),
}


def function(call: Call, namespace: Any) -> Callable[..., list]:
    """The call as a function of its variables to the floating arrays in its result."""
    names = call.variables
    code = compile(call.text, "<call>", "eval")

    def f(*xs: Any) -> list:
        known = {"np": namespace, **CONSTANTS, **dict(zip(names, xs, strict=True))}
        return list(_floats(eval(code, known)))

    return f


def _floats(out: Any) -> Iterator[Any]:
    if hasattr(out, "dtype"):
        if np.dtype(out.dtype).kind in "fc":
            yield out
    elif hasattr(out, "__len__"):
        for n in range(len(out)):
            yield from _floats(out[n])


def scalar(f: Callable[..., list], namespace: Any) -> Callable[..., Any]:
    """The outputs weighed and summed, real and imaginary parts apart."""

    def total(*xs: Any) -> Any:
        parts = []
        for y in f(*xs):
            n = int(np.prod(y.shape))
            weights = np.cos(1.0 + np.arange(n)).reshape(y.shape)
            pair = [namespace.real(y), namespace.imag(y)] if np.dtype(y.dtype).kind == "c" else [y]
            parts += [namespace.sum(part * (weights + 0.1 * k)) for k, part in enumerate(pair)]
        return sum(parts[1:], parts[0])

    return total


class Point(NamedTuple):
    """Where a call is differentiated, along what, and what numbers say of it."""

    xs: list[np.ndarray]
    ts: list[np.ndarray]
    values: list[np.ndarray]
    moved: list[np.ndarray]  # J t
    slope: float  # of the scalar, along t
    bend: float  # its second derivative along t


def point(call: Call) -> Point:
    """The numerical references of a call."""
    f = function(call, np)
    total = scalar(f, np)
    xs = [VARIABLES[n].copy() for n in call.variables]
    rng = np.random.default_rng(0)
    ts = [_direction(rng, x) for x in xs]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = [np.asarray(y) for y in f(*xs)]
        if not values:
            return Point(xs, ts, [], [], 0.0, 0.0)
        parts = [numerical_jvp(f, xs, n, t) for n, t in enumerate(ts)]
        slopes = [numerical_jvp(lambda *a: [total(*a)], xs, n, t)[0] for n, t in enumerate(ts)]
        moved = [np.asarray(sum(column)) for column in zip(*parts, strict=True)]
        return Point(xs, ts, values, moved, float(sum(slopes).real), _bend(total, xs, ts))  # type: ignore[union-attr]  # one variable at least


def _direction(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    t = rng.uniform(0.3, 1.0, x.shape) * rng.choice([-1.0, 1.0], x.shape)
    return t + 1j * rng.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else t


def _bend(total: Callable[..., Any], xs: list, ts: list) -> float:
    """The second derivative along ``ts`` by central differences, extrapolated twice."""

    def at(e: float) -> float:
        return float(np.real(total(*[x + e * t for x, t in zip(xs, ts, strict=True)])))

    here = at(0.0)
    d = [(at(e) - 2 * here + at(-e)) / e**2 for e in (2.0**-7, 2.0**-8, 2.0**-9)]
    first = [(4 * d[1] - d[0]) / 3, (4 * d[2] - d[1]) / 3]
    return (16 * first[1] - first[0]) / 15


# ---- libraries


class Library:
    """One library's transforms. A method raises where it cannot; None: there is no such mode."""

    name = ""
    conjugates = False  # whether cotangents are directions of ascent
    # what ``np`` stands for in a call: the first of these with which it can be differentiated
    namespaces: tuple

    def jvp(self, f: Callable, xs: list, ts: list) -> tuple[list, list]:
        raise NotImplementedError

    def grad(self, f: Callable, count: int) -> Callable[..., Sequence]:
        raise NotImplementedError

    def vmap(self, f: Callable) -> Callable | None:
        return None

    def jit(self, f: Callable) -> Callable | None:
        return None


class Functrans(Library):
    name = "functrans"
    conjugates = True

    def __init__(self) -> None:
        self.namespaces = np, ft.numpy

    def jvp(self, f, xs, ts):
        return ft.jvp(f, tuple(xs), tuple(ts))

    def grad(self, f, count):
        return ft.grad(f, tuple(range(count)))

    def vmap(self, f):
        return ft.vmap(f)

    def jit(self, f):
        return ft.jit(f)


class Jax(Library):
    name = "JAX"

    def __init__(self) -> None:
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.jax.config.update("jax_disable_most_optimizations", True)
        self.namespaces = (importlib.import_module("jax.numpy"),)

    def _arrays(self, xs):
        return tuple(map(self.namespaces[0].asarray, xs))

    def jvp(self, f, xs, ts):
        return self._run(lambda xs, ts: self.jax.jvp(f, xs, ts), self._arrays(xs), self._arrays(ts))

    def _run(self, f, *args):
        """Compiled, which is faster, or op by op where it cannot be compiled."""
        with contextlib.suppress(Exception):
            return self.jax.jit(f)(*args)
        return f(*args)

    def grad(self, f, count):
        g = self.jax.grad(f, tuple(range(count)))
        return lambda *xs: self._run(g, *self._arrays(xs))

    def vmap(self, f):
        return lambda *xs: self._run(self.jax.vmap(f), *self._arrays(xs))

    def jit(self, f):
        return self.jax.jit(f)


class Autograd(Library):
    name = "HIPS autograd"

    def __init__(self) -> None:
        self.core = importlib.import_module("autograd.core")
        self.autograd = importlib.import_module("autograd")
        self.namespaces = (importlib.import_module("autograd.numpy"),)
        self.tuple = importlib.import_module("autograd.builtins").tuple

    def jvp(self, f, xs, ts):
        push = self.core.make_jvp(lambda xs: self.tuple(f(*xs)), self.tuple(tuple(xs)))
        return push(self.tuple(tuple(ts)))

    def grad(self, f, count):
        g = self.autograd.grad(lambda xs: f(*xs))
        return lambda *xs: g(self.tuple(tuple(xs)))


LIBRARIES: tuple[type[Library], ...] = (Functrans, Jax, Autograd)


def installed() -> list[Library]:
    found = []
    for cls in LIBRARIES:
        with contextlib.suppress(ImportError):
            found.append(cls())
    return found


# ---- the question


def answers(library: Library, call: Call, at: Point, modes: Sequence[str] = MODES) -> dict:
    """For each mode: "yes", "constant" for what has no derivative, or why not."""
    first, *others = [_answers(library, namespace, call, at, modes)
                      for namespace in library.namespaces]
    for found in others:
        first = {m: RENAMED if _good(found[m]) and not _good(a) and not a.startswith("wrong") else a
                 for m, a in first.items()}
    return first


def _answers(library: Library, namespace: Any, call: Call, at: Point, modes: Sequence[str]) -> dict:
    f = function(call, namespace)
    if not at.values:
        return dict.fromkeys(modes, _quietly(lambda: _constant(library, namespace, f, at)))
    total = scalar(f, namespace)
    gradient = library.grad(total, len(at.xs))
    checks = {
        "forward": lambda: _forward(library, f, at),
        "reverse": lambda: _along(library, gradient(*at.xs), at, at.slope, 1e-6),
        "second": lambda: _second(library, gradient, at),
        "vmap": lambda: _batched(library, gradient, at),
        "jit": lambda: _compiled(library, gradient, at),
    }
    return {mode: _quietly(checks[mode]) for mode in modes}


def _quietly(check: Callable[[], str]) -> str:
    """What a check says; an exception of any kind is the library's answer."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return check()
        except Exception as error:
            text = re.sub(r"^\S+:\d+: ", "", str(error).strip().split("\n")[0])
            return f"{type(error).__name__}: {text[:90]}"


def _constant(library: Library, namespace: Any, f: Callable, at: Point) -> str:
    """What gives integers or booleans must still run on traced values."""

    def moved(*xs: Any) -> Any:
        f(*xs)
        return sum(namespace.sum(namespace.real(x)) for x in xs)

    library.grad(moved, len(at.xs))(*at.xs)
    return CONSTANT


def _forward(library: Library, f: Callable, at: Point) -> str:
    values, tangents = library.jvp(f, at.xs, at.ts)
    for found, expected in ((values, at.values), (tangents, at.moved)):
        if len(found) != len(expected):
            return f"returns {len(found)} floating arrays, not {len(expected)}"
        for x, y in zip(found, expected, strict=True):
            if np.shape(x) != y.shape or not _close(np.asarray(x), y, 1e-6):
                return "wrong"
    return RIGHT


def _close(found: Any, expected: Any, tol: float) -> bool:
    size = np.max(np.abs(expected), initial=0.0)
    return bool(np.all(np.abs(found - expected) <= tol * (size + 1)))


def _along(library: Library, gradient: Sequence, at: Point, expected: float, tol: float) -> str:
    found = 0.0
    for g, t in zip(gradient, at.ts, strict=True):
        g = np.asarray(g)
        if g.shape != t.shape:
            return "wrong shape"
        found += float(np.real(np.sum((g.conj() if library.conjugates else g) * t)))
    return RIGHT if _close(found, expected, tol) else "wrong"


def _second(library: Library, gradient: Callable, at: Point) -> str:
    _, moved = library.jvp(lambda *xs: list(gradient(*xs)), at.xs, at.ts)
    return _along(library, moved, at, at.bend, 1e-5)


def _stacked(at: Point) -> list[np.ndarray]:
    pairs = zip(at.xs, at.ts, strict=True)
    return [np.stack([x + 0.003 * n * t for n in range(3)]) for x, t in pairs]


def _batched(library: Library, gradient: Callable, at: Point) -> str:
    mapped = library.vmap(gradient)
    if mapped is None:
        return NONE
    batch = _stacked(at)
    found = mapped(*batch)
    for n in range(3):
        if not _same([g[n] for g in found], gradient(*[x[n] for x in batch])):
            return "wrong"
    return RIGHT


def _compiled(library: Library, gradient: Callable, at: Point) -> str:
    compiled = library.jit(gradient)
    if compiled is None:
        return NONE
    return RIGHT if _same(compiled(*at.xs), gradient(*at.xs)) else "wrong"


def _same(found: Sequence, expected: Sequence) -> bool:
    return all(
        _close(np.asarray(a), np.asarray(b), 1e-9) for a, b in zip(found, expected, strict=True)
    )


# ---- the page


def run(libraries: Sequence[Library], chosen: Sequence[Call]) -> dict[Call, dict[str, dict]]:
    results: dict[Call, dict[str, dict]] = {}
    for call in chosen:
        at = point(call)
        results[call] = {lib.name: answers(lib, call, at) for lib in libraries}
        print(f"{call.text:60}", _row(results[call].get("functrans", {})), flush=True)
    return results


def _row(found: dict) -> str:
    return " ".join(f"{mode} {_mark(a)}" for mode, a in found.items())


def _mark(answer: str) -> str:
    return "yes" if _good(answer) else "wrong" if answer.startswith("wrong") else "no"


HEAD = """# Coverage

Calls drawn from NumPy's documentation (`benchmarks/calls.txt`), each differentiated in forward and
reverse mode, to second order (forward over reverse), under `vmap` and under `jit`. A yes is a
derivative that agrees with differences of NumPy's own function, which know no rule; *constant*
stands for results that have no derivative. `np` is the library's own namespace for JAX and HIPS
autograd; for functrans it is NumPy itself and, where a call does not reach a traced value that way
(`np.array([x, y])`), `functrans.numpy`. Calls are made as NumPy's documentation has them, lists
included, which some libraries refuse. PyTorch has no namespace of NumPy's names and options, so it
is not asked. Written by `python -m benchmarks.coverage` with {versions}.
"""
PACKAGES = {"JAX": "jax", "HIPS autograd": "autograd"}


def page(results: dict[Call, dict[str, dict]], libraries: Sequence[Library]) -> str:
    """The table of totals, what is missing and why, and every call."""
    missing = [_missing(results, library) for library in libraries]
    peers = [PACKAGES[library.name] for library in libraries if library.name in PACKAGES]
    versions = ", ".join([f"{name} {metadata.version(name)}" for name in ("numpy", *peers)])
    parts = [HEAD.format(versions=versions), _totals(results, libraries), *missing,
             _everything(results, libraries)]
    return "\n".join(parts)


def _good(answer: str) -> bool:
    return answer in (RIGHT, CONSTANT, RENAMED)


def _totals(results, libraries) -> str:
    lines = [f"{len(results)} calls. How many are right:\n"]
    lines.append(f"| | {' | '.join(MODES)} | all five |")
    lines.append("| --- |" + " ---: |" * (len(MODES) + 1))
    for library in libraries:
        rows = [found[library.name] for found in results.values()]
        counts = [_count([r[mode] for r in rows]) for mode in MODES]
        every = [NONE if NONE in r.values() else min(r.values(), key=_good) for r in rows]
        counts.append(_count(every))
        lines.append(f"| {library.name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def _count(answers: Sequence[str]) -> str:
    return "none" if NONE in answers else str(sum(map(_good, answers)))


def _missing(results, library) -> str:
    lines = [f"## Not right in {library.name}\n"]
    for call, found in results.items():
        bad = {m: a for m, a in found[library.name].items()
               if not _good(a) and a != NONE}
        if not bad:
            continue
        reasons: dict[str, list[str]] = {}
        for mode, answer in bad.items():
            reasons.setdefault(answer, []).append(mode)
        text = "; ".join(f"{', '.join(modes)}: {reason}" for reason, modes in reasons.items())
        lines.append(f"- `{call.text}`: {text}")
    return "\n".join(lines if len(lines) > 1 else [*lines, "Nothing."]) + "\n"


def _everything(results, libraries) -> str:
    lines = ["## Every call", "",
             f"Modes in the order {', '.join(MODES)}: `+` right, `=` constant, "
             "`*` right under the library's own name for the function only, `!` wrong, `-` none.\n"]
    topic = None
    for call, found in results.items():
        if call.topic != topic:
            topic = call.topic
            lines += [f"\n### {topic}\n", f"| call | {' | '.join(lib.name for lib in libraries)} |",
                      "| --- |" + " --- |" * len(libraries)]
        signs = [f"`{''.join(map(_sign, found[lib.name].values()))}`" for lib in libraries]
        text = call.text.replace("|", r"\|")
        lines.append(f"| `{text}` | {' | '.join(signs)} |")
    return "\n".join(lines) + "\n"


def _sign(answer: str) -> str:
    known = {RIGHT: "+", CONSTANT: "=", RENAMED: "*"}
    return known.get(answer, "!" if answer.startswith("wrong") else "-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--match", default="", help="only calls that contain this")
    parser.add_argument("--peers", help="only these libraries, separated by commas")
    args = parser.parse_args()
    libraries = installed()
    if args.peers:
        wanted = args.peers.split(",")
        libraries = [lib for lib in libraries if lib.name in wanted]
    chosen = [call for call in calls() if args.match in call.text]
    results = run(libraries, chosen)
    text = page(results, libraries)
    if args.match or args.peers:
        print(text)
    else:
        PAGE.write_text(text)
        print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
