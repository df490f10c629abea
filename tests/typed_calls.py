"""Calls at operands of drawn types: what NumPy gives, and what each transform does."""

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import functrans as ft
from benchmarks import coverage
from benchmarks.coverage import Call
from functrans.errors import ConcretizationError, ImmutableError, UnsupportedError

TYPES = [*"?efdgFD", "i1", "u1", "i2", "u4", "i4", "i8", "u8", ">f8", ">i2", ">f4"]
ASKED = ("f8", "f4", "f2", "i8", "i2", "c16", "g", "u1")
NUMBERS = ("2", "2.5", "1j", "True", "np.float64(2)", "np.float32(2.5)")
VARIABLES = coverage.VARIABLES | {
    "a": np.array([6000.0, 6000.5, 3.0, 5900.0]), "n": np.array([[200.0, 3, 100], [7, 150.5, 200]]),
}
LARGE = ("a", "n")
# Of the type's precision, in units of the largest entry: sums and decompositions.
MARGIN = 256


def calls() -> list[Call]:
    """Those of the coverage page, and those of the list beside this file, written out."""
    found = coverage.calls()
    for line in (Path(__file__).parent / "typed_calls.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        asked = re.compile(r"(?<!\.)\bT\b")
        values = ASKED if asked.search(line) else NUMBERS if "=N)" in line else ("",)
        found += [Call("types", asked.sub(repr(v), line).replace("=N)", f"={v})")) for v in values]
    return found


def drawn(call: Call, rng: np.random.Generator) -> tuple[str, ...]:
    """A type for each variable of the call."""
    return tuple([str(rng.choice(TYPES + [*PYTHONS] * 4 * (n == "c"))) for n in variables(call)])


def variables(call: Call) -> list[str]:
    return [n for n in VARIABLES if re.search(rf"\b{n}\b", call.text)]


def operands(names: list[str], kinds: tuple[str, ...]) -> list[np.ndarray]:
    """The numbers of variables in these types, as whole numbers where they are of integers."""
    return [_operand(VARIABLES[n], k, n in LARGE) for n, k in zip(names, kinds, strict=True)]


PYTHONS = {"int": int, "float": float}  # numbers of Python's, of which c may be one


def _operand(x: np.ndarray, kind: str, large: bool) -> Any:
    return PYTHONS[kind](10 * x) if kind in PYTHONS else _in_type(x, np.dtype(kind), large)


def _in_type(x: np.ndarray, dtype: np.dtype, large: bool) -> np.ndarray:
    x = x if dtype.kind == "c" else np.real(x)
    if dtype.kind == "b":
        x = x > (5 if large else 0.5)
    elif dtype.kind in "iu":
        x = np.floor(x if large else 10 * x)
        x = np.minimum(x, 100) if dtype.itemsize == 1 else x
    return np.asarray(x).astype(dtype)


def function(call: Call, namespace: Any) -> Callable[..., list]:
    """The call as a function of its variables to all arrays and numbers in its result."""
    names, code = variables(call), compile(call.text, "<call>", "eval")

    def f(*xs: Any) -> list:
        known = {"np": namespace, **coverage.CONSTANTS, **dict(zip(names, xs, strict=True))}
        return list(_flat(eval(code, known)))

    return f


def _flat(out: Any) -> Iterator[Any]:
    if isinstance(out, bool | int | float | complex):
        yield np.asarray(out)
    elif hasattr(out, "dtype"):
        yield out
    elif hasattr(out, "__len__") and not isinstance(out, str):
        for n in range(len(out)):
            yield from _flat(out[n])


def difference(got: list, want: list) -> str:
    """What of the results is not as in NumPy, apart from the order of bytes."""
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for g, w in zip(map(_native, got), map(_native, want), strict=True):
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"{g.dtype}{list(g.shape)} for {w.dtype}{list(w.shape)}"
        if g.dtype.kind in "biu" and not np.array_equal(g, w):
            return f"{g.ravel()[:4]} for {w.ravel()[:4]}"
        if g.dtype.kind in "fc" and not _close(g, w):
            return f"{g.ravel()[:4]} for {w.ravel()[:4]}"
    return ""


def _native(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(x.dtype.newbyteorder("="))


def _close(g: np.ndarray, w: np.ndarray) -> bool:
    eps = float(np.finfo(g.dtype).eps)
    g, w = [x if x.dtype.char in "gG" else x.astype(complex) for x in (g, w)]
    finite = np.isfinite(w)
    if not np.array_equal(finite, np.isfinite(g)):
        return False
    away = np.max(abs(g - w)[finite], initial=0)
    return bool(away <= MARGIN * eps * np.max(abs(w[finite]), initial=0))


def ways(call: Call, xs: list[np.ndarray], jit: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """How a call is run: names, and what gives its results or None."""
    floating = [i for i, x in enumerate(xs) if np.asarray(x).dtype.kind in "fc"]
    inputs = [xs[i] for i in floating]

    def part(f: Callable) -> Callable:
        def of_floating(*ys: Any) -> Any:
            full = list(xs)
            for i, y in zip(floating, ys, strict=True):
                full[i] = y
            return f(*full)

        return of_floating

    def cotangents(f: Callable) -> None:
        ys, pull = ft.vjp(part(f), *inputs)
        cts = [np.ones_like(np.asarray(y)) if np.asarray(y).dtype.kind in "fc"
               else np.zeros(np.shape(y)) for y in ys]
        for x, ct in zip(inputs, pull(cts), strict=True):
            assert _native(ct).dtype == _native(x).dtype, f"cotangent {np.asarray(ct).dtype}"

    if floating:
        ones = tuple(map(np.ones_like, inputs))
        yield "vjp", lambda: _reached(call, lambda f: ft.vjp(part(f), *inputs)[0])
        yield "jvp", lambda: _reached(call, lambda f: ft.jvp(part(f), tuple(inputs), ones)[0])
        yield "cotangents", lambda: _reached(call, cotangents)
    if not any([type(x) in (int, float) for x in xs]):
        pairs = [np.stack([x, x]).astype(x.dtype) for x in xs]
        yield "vmap", lambda: [np.asarray(y)[1]
                               for y in _reached(call, lambda f: ft.vmap(f)(*pairs))]
    if jit:
        yield "jit", lambda: _reached(call, lambda f: ft.jit(f)(*xs))


def _reached(call: Call, run: Callable[[Callable], Any]) -> Any:
    """``run`` of the call by the first namespace through which it reaches traced values."""
    refusal: Exception = AssertionError(call)
    for namespace in (ft.numpy,) if "out=" in call.text else (np, ft.numpy):
        try:
            return run(function(call, namespace))
        except (ConcretizationError, UnsupportedError, ImmutableError) as error:
            refusal = error
    raise refusal


def faults(call: Call, kinds: tuple[str, ...], jit: bool) -> list[str]:
    """What is not as in NumPy at operands of these types."""
    xs = operands(variables(call), kinds)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            want = [np.array(y) for y in function(call, np)(*xs)]
        except (TypeError, ValueError, OverflowError, np.linalg.LinAlgError) as error:
            want = error
        return [f"{way}: {fault}" for way, run in ways(call, xs, jit)
                if (fault := _fault(run, want))]


def _fault(run: Callable[[], Any], want: Any) -> str:
    try:
        got = run()
    except (ConcretizationError, ImmutableError, UnsupportedError):
        return ""
    except Exception as error:
        known = isinstance(want, Exception) or "imaginary part" in str(error)
        ours = isinstance(error, AssertionError | AttributeError)
        return f"{type(error).__name__}: {error}" if ours or not known else ""
    if got is None:
        return ""
    if isinstance(want, Exception):
        # of singular matrices and zeros, values decide, which a program does not know
        decided = isinstance(want, np.linalg.LinAlgError | ValueError | OverflowError)
        return "" if decided else f"{[g.dtype for g in got]} where NumPy has {want!r}"
    return difference(got, want)
