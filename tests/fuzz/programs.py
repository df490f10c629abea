"""Random well-typed programs, drawn as lines of NumPy code that run on drawn arrays.

A program is text, so a failing one can be read and run as it is printed. Each line is run as it is
drawn: its value tells which lines can follow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import functrans as ft
from tests.fuzz.flow import FLOW

F32, F64, C64, C128, I64, BOOL = map(np.dtype, ("f4", "f8", "c8", "c16", "i8", "?"))
LARGEST = 400  # entries of a value
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -0.5, 1e-310, -1e30, 3e38, np.inf, -np.inf, np.nan]
EXTREME = [0, 1, -1, 2, -3, 7, 2**62, -(2**63)]


@dataclass(frozen=True)
class Value:
    """A name in the program, with what it was when drawn.

    ``exact``: computed to the last bit on every way, so that comparing it decides the same.
    """

    name: str
    x: Any
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    @property
    def dtype(self) -> np.dtype:
        return self.x.dtype


@dataclass
class Drawn:
    """A program: arguments, lines, and the names that it returns."""

    args: list[np.ndarray]
    lines: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    largest: float = 1.0  # of all values on the way

    @property
    def source(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.args)))
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"def f({names}):\n{body}\n    return {''.join(v + ', ' for v in self.outputs)}\n"

    def function(self) -> Callable[..., tuple]:
        env: dict[str, Any] = {"np": np, "ft": ft}
        exec(self.source, env)
        return env["f"]

    def __repr__(self) -> str:
        args = "\n".join(
            f"x{i} = {x!r}  # {x.dtype}{list(x.shape)}, strides {x.strides}"
            for i, x in enumerate(self.args)
        )
        return f"\n{self.source}{args}\n"


class Drawer:
    """Draws one program. ``exact``: special values, and only ops with one right answer.

    Hypothesis chooses either every step or the seed of all steps: its own choices shrink better,
    and repeat themselves more.
    """

    def __init__(self, draw: Callable, exact: bool):
        self.draw = draw
        seed = draw(st.one_of(st.none(), st.integers(0, 2**32), st.integers(0, 2**32)))
        self.chance = None if seed is None else random.Random(seed)
        self.exact = exact
        self.dtypes = [F64, F64, F32, I64, BOOL, C128, C64]
        self.values: list[Value] = []
        self.held: dict[str, Any] = {}  # names that stand for several values
        self.program = Drawn([])

    # ---- what is drawn

    def number(self, low: int, high: int) -> int:
        if self.chance is not None:
            return self.chance.randint(low, high)
        return self.draw(st.integers(low, high))

    def pick(self, xs: Any) -> Any:
        return xs[self.number(0, len(xs) - 1)] if len(xs) > 1 else xs[0]

    def flag(self) -> bool:
        return bool(self.number(0, 1))

    def shape(self) -> tuple[int, ...]:
        return tuple([self.pick([3, 2, 4, 1, 5, 9, 17, 0]) for _ in range(self.number(0, 4))])

    # ---- arguments

    def argument(self) -> None:
        shape = self.shape()
        while math.prod(shape) > LARGEST:
            shape = shape[1:]
        dtype = self.pick(self.dtypes) if self.program.args else F64
        x = self.laid_out(self.entries(shape, dtype))
        x.setflags(write=False)
        self.values.append(Value(f"x{len(self.program.args)}", x, True))
        self.program.args.append(x)

    def entries(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        rng = np.random.default_rng(self.number(0, 1000))
        n = math.prod(shape)
        if dtype.kind == "b":
            x = rng.random(n) < 0.5
        elif dtype.kind == "i":
            x = rng.choice(EXTREME, n) if self.exact else rng.integers(-4, 5, n)
        else:
            # distinct, so that nothing ties by chance
            x = (rng.permutation(n) + 0.37) / max(n, 1) * 3 - 1.4
            if self.exact:
                x = np.where(rng.random(n) < 0.4, rng.choice(SPECIAL, n), x * 10)
            if dtype.kind == "c":
                x = np.stack([x, x[::-1]], axis=-1).view(complex)[:, 0]
        with np.errstate(all="ignore"):
            return x.astype(dtype).reshape(shape)

    def laid_out(self, x: np.ndarray) -> np.ndarray:
        """The same entries, elsewhere in memory."""
        how = self.number(0, 4)
        if how == 1:
            return np.asfortranarray(x)
        if how == 2 and x.ndim:
            return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
        if how == 3 and x.ndim:
            wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
            wide[..., 1::2] = x
            return wide[..., 1::2]
        if how == 4:
            raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
            raw[:] = np.frombuffer(x.tobytes(), np.uint8)
            return raw.view(x.dtype).reshape(x.shape) if x.size else x
        return x

    # ---- lines

    def add(self, text: str, exact: bool) -> None:
        """A line, unless its value is too large or not an array of numbers."""
        x = np.asarray(self.evaluated(text))
        size = np.abs(x[np.isfinite(x)]).max(initial=0) if x.dtype.kind in "fc" else 0
        finite = x.dtype.kind not in "fc" or np.isfinite(x).all()
        if x.size > LARGEST or x.ndim > 5 or not (self.exact or (finite and size < 1e3)):
            return
        self.program.largest = max(self.program.largest, float(size))
        name = f"v{len(self.program.lines)}"
        self.values.append(Value(name, x, exact))
        self.program.lines.append(f"{name} = {text}")

    def evaluated(self, text: str) -> Any:
        values: dict[str, Any] = {v.name: v.x for v in self.values}
        with np.errstate(all="ignore"):
            return eval(text, values | self.held | {"np": np, "ft": ft})

    def hold(self, text: str) -> str:
        """A name for a container."""
        name = f"p{len(self.program.lines)}"
        self.held[name] = self.evaluated(text)
        self.program.lines.append(f"{name} = {text}")
        return name

    def value(self, kinds: str = "fcib", exact: bool = False, axes: int = 0) -> Value | None:
        """A value drawn before, recent ones first."""
        fitting = [v for v in reversed(self.values)
                   if v.dtype.kind in kinds and v.x.ndim >= axes and (v.exact or not exact)]
        return self.pick(fitting) if fitting else None

    def partner(self, v: Value, kinds: str, exact: bool = False) -> Value:
        """A value that broadcasts against ``v``."""
        fitting = [w for w in reversed(self.values) if w.dtype.kind in kinds
                   and (w.exact or not exact) and _broadcast(v.shape, w.shape)]
        return self.pick(fitting) if fitting else v

    def run(self, most: int) -> Drawn:
        count = self.draw(st.integers(1, most))
        for _ in range(self.number(1, 3)):
            self.argument()
        for _ in range(count):
            self.pick(STEPS)(self)
        last = [v.name for v in self.values if v.name.startswith("v")][-3:]
        self.program.outputs = last or ["x0"]
        return self.program


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(a, b)) <= LARGEST
    except ValueError:
        return False


# ---- the steps

# correctly rounded, so that there is one right answer
ONE_ANSWER = ["-{}", "np.abs({})", "np.sqrt({})", "np.square({})", "np.floor({})", "np.ceil({})",
              "np.trunc({})", "np.rint({})", "np.reciprocal({})", "np.sign({})", "np.isnan({})",
              "np.isfinite({})", "np.isinf({})", "np.signbit({})", "+{}", "np.positive({})"]
SMOOTH = ["np.sin({})", "np.cos({})", "np.tanh({})", "np.exp(-{0} * {0})", "np.log1p({0} * {0})",
          "np.sqrt(1 + {0} * {0})", "np.arctan({})", "-{}", "np.square({})", "{} / 3.0", "{} * 0.5",
          "1.5 - {}", "1.0 / (2 + {0} * {0})", "({0} * {0} + 0.5)**1.5", "{}**2", "{}**3",
          "np.expm1({} * 0.1)", "np.sinh(np.sin({}))", "np.logaddexp({}, 0.5)",
          "np.cbrt(2 + np.sin({}))",
          "np.hypot({}, 1.0)", "np.arctan2({}, 2.0)", "np.where({0} == {0}, {0}, 0.0)"]
ARITHMETIC = ["{} + {}", "{} - {}", "{} * {}"]
ORDERED = ["np.maximum({}, {})", "np.minimum({}, {})", "np.fmax({}, {})", "np.fmin({}, {})"]
COMPARED = ["{} < {}", "{} <= {}", "{} > {}", "{} >= {}", "{} == {}", "{} != {}"]


def unary(d: Drawer) -> None:
    if (v := d.value("f")) is not None:
        d.add(d.pick(ONE_ANSWER if d.exact else SMOOTH).format(v.name), d.exact)


# correctly rounded, and what NumPy computes part by part or by the C library
COMPLEX_ANSWER = ["-{}", "np.conj({})", "np.real({})", "np.imag({})", "np.isnan({})", "+{}",
                  "np.isfinite({})", "np.isinf({})", "np.sqrt({})", "np.log({})", "np.exp({})",
                  "np.sin({})", "np.tanh({})"]
COMPLEX_SMOOTH = ["np.sin({})", "{} * 0.5", "np.conj({})", "np.real({})", "np.imag({})",
                  "{0} * {0}", "np.exp({} * 0.2)", "np.abs({} + 5)", "np.sqrt({} + 5)",
                  "np.log({} * 0.1 + 2)", "np.square({})", "1 / ({0} * np.conj({0}) + 2)",
                  "np.sum({})", "np.sum({}) / 7"]
COMPLEX_MATRIX = ["np.sum({}, axis=-1, keepdims=True)", "np.prod({}, axis=0)", "{}.mT @ {}",
                  "np.einsum('...ij,...kj->i...k', {0}, {0})"]


def complex_unary(d: Drawer) -> None:
    if (v := d.value("c")) is not None:
        smooth = COMPLEX_SMOOTH + COMPLEX_MATRIX * (v.x.ndim > 1)
        d.add(d.pick(COMPLEX_ANSWER if d.exact else smooth).format(v.name, v.name), d.exact)


def complex_binary(d: Drawer) -> None:
    """Complex numbers with numbers of any kind: what is rounded once in each part."""
    if (v := d.value("c")) is not None:
        w = d.partner(v, "cfib")
        same = v.exact and w.exact
        if d.exact:
            texts = ["{} + {}", "{} - {}", "{} / {}", "{} == {}", "{} != {}",
                     "np.where({1} == {1}, {0}, {1})", "np.stack([{0}, np.conj({0})])"]
        else:
            texts = ["{} + {}", "{} - {}", "{} * {}", "{} / ({} * 0.1 + 3)"]
        d.add(d.pick(texts).format(v.name, w.name), d.exact and same)


def binary(d: Drawer) -> None:
    kinds = "f" if d.exact else "fci"
    if (v := d.value(kinds)) is not None:
        w = d.partner(v, kinds)
        more = ["{} / {}", "np.copysign({}, {})", "{} // {}", "{} % {}", "np.fmod({}, {})"]
        texts = [*ARITHMETIC, *more] if d.exact else ARITHMETIC
        d.add(d.pick(texts).format(v.name, w.name), d.exact or v.dtype.kind == w.dtype.kind == "i")


def mixed(d: Drawer) -> None:
    """Different kinds, and Python's own numbers."""
    if (v := d.value("fib", exact=not d.exact)) is not None:
        w = d.partner(v, "fib", exact=not d.exact).name
        other = d.pick([w, w, "2", "0.75", "-1"])
        if v.dtype.kind == "b" and "." not in other:
            other = f"({other} * 1)"
        text = d.pick(["{} + {}", "{} * {}", "({} * 1) - {}"]).format(v.name, other)
        d.add(text, d.exact)


def integers(d: Drawer) -> None:
    if (v := d.value("i")) is not None:
        w = d.partner(v, "i").name
        texts = [*ARITHMETIC, "{} // {}", "{} % {}", "{} & {}", "{} | {}", "{} ^ {}", "~{}",
                 "-{}", "np.abs({})", "np.sign({})", "np.square({})", *ORDERED[:2], *COMPARED]
        text = d.pick(texts)
        d.add(text.format(v.name, w), True)


def logical(d: Drawer) -> None:
    if (v := d.value("b")) is not None:
        w = d.partner(v, "b").name
        d.add(d.pick(["{} & {}", "{} | {}", "{} ^ {}", "~{}", "np.logical_and({}, {})",
                      "np.logical_or({}, {})", "np.logical_not({})"]).format(v.name, w), True)


def compared(d: Drawer) -> None:
    if (v := d.value("fi", exact=True)) is not None:
        w = d.pick([d.partner(v, "fi", exact=True).name, "0.5"])
        d.add(d.pick(COMPARED).format(v.name, w), True)


def ordered(d: Drawer) -> None:
    if (v := d.value("fi", exact=True)) is not None:
        w = d.partner(v, v.dtype.kind, exact=True)
        text = d.pick([*ORDERED, "np.clip({}, -1, 2)", "np.abs({})"])
        d.add(text.format(v.name, w.name), True)


def chosen(d: Drawer) -> None:
    if (c := d.value("b")) is not None:
        v = d.partner(c, "f")
        w = d.partner(v, "f")
        if v.dtype.kind == "f" and _broadcast(np.broadcast_shapes(c.shape, v.shape), w.shape):
            other = d.pick([w.name, "0.0", "1.5"])
            text = f"np.where({c.name}, {v.name}, {other})"
            d.add(text, v.exact and (other != w.name or w.exact))


def converted(d: Drawer) -> None:
    if (v := d.value("fib")) is not None:
        to = d.pick({"f": ["f4", "f8", "?"], "i": ["f8", "?", "i4", "f4", "i1"],
                     "b": ["i8", "f4", "f8"]}[v.dtype.kind])
        if to != "?" or v.exact:
            d.add(f"{v.name}.astype('{to}')", v.exact)


def moved(d: Drawer) -> None:
    if (v := d.value()) is None:
        return
    n, shape = v.x.ndim, v.shape
    texts = [f"{v.name}[None]", f"{v.name}.reshape(-1)", f"{v.name}[..., None]", f"{v.name}.T",
             f"np.broadcast_to({v.name}, {(2, *shape)})"]
    if n:
        axes = sorted(range(n), key=lambda _: d.number(0, 9))
        texts += [f"np.transpose({v.name}, {tuple(axes)})",
                  f"np.flip({v.name}, {d.number(0, n - 1)})",
                  f"np.roll({v.name}, {d.number(-3, 3)}, {d.number(0, n - 1)})",
                  f"{v.name}.reshape({tuple(reversed(shape))})"]
        texts += [f"{v.name}[{sliced(d, shape)}]"] * 4
    if 1 in shape:
        texts += [f"np.squeeze({v.name})",
                  f"np.broadcast_to({v.name}, {tuple(3 if k == 1 else k for k in shape)})"]
    d.add(d.pick(texts), v.exact)


def sliced(d: Drawer, shape: tuple[int, ...]) -> str:
    """A basic index."""
    parts = []
    for n in shape[: d.number(1, len(shape))]:
        bounds = ["", "1", "2", "-1", "-2", "0"]
        step = d.pick(["", "-1", "2", "-2", "3"])
        parts.append(f"{d.pick(bounds)}:{d.pick(bounds)}:{step}")
        if n and not d.number(0, 3):
            parts[-1] = str(d.number(-n, n - 1))
    return ", ".join([*parts, *d.pick([[], [], ["..."], ["None"]])])


def gathered(d: Drawer) -> None:
    if (v := d.value(axes=1)) is None or not v.shape[0]:
        return
    n = v.shape[0]
    rows = [d.number(-n, n - 1) for _ in range(d.number(1, 4))]
    texts = [f"{v.name}[np.array({rows})]", f"np.take({v.name}, np.array({rows}), axis=0)"]
    if v.x.ndim > 1 and v.shape[1]:
        columns = [d.number(-v.shape[1], v.shape[1] - 1) for _ in rows]
        texts.append(f"{v.name}[np.array({rows}), np.array({columns})]")
        texts.append(f"{v.name}[:, np.array({columns})]")
    d.add(d.pick(texts), v.exact)


def joined(d: Drawer) -> None:
    if (v := d.value("fi")) is None:
        return
    same = [w for w in d.values if w.shape == v.shape and w.dtype.kind == v.dtype.kind]
    w, axis = d.pick(same), d.number(0, v.x.ndim)
    texts = [f"np.stack([{v.name}, {w.name}], axis={axis})"]
    if v.x.ndim:
        axis = min(axis, v.x.ndim - 1)
        texts.append(f"np.concatenate([{v.name}, {w.name}, {v.name}], axis={axis})")
    d.add(d.pick(texts), v.exact and w.exact)


def reduced(d: Drawer) -> None:
    ordered_only = d.flag()
    if (v := d.value("fib" if d.exact else "f", exact=ordered_only)) is None:
        return
    axis: Any = None
    if v.x.ndim:
        axes = sorted(set(d.number(0, v.x.ndim - 1) for _ in range(d.number(1, 2))))
        axis = d.pick([None, tuple(axes)])
    keep = d.flag()
    sizes = [n for i, n in enumerate(v.shape) if axis is None or i in axis]
    if ordered_only:
        names = ["any", "all"] + ["max", "min"] * (0 not in sizes)
        names += ["sum", "count_nonzero"] * (v.dtype.kind in "ib")
    else:
        names = ["sum", "mean", "prod", "var"] if 0 not in sizes else ["sum", "prod"]
    if d.exact and not ordered_only:
        return
    d.add(f"np.{d.pick(names)}({v.name}, axis={axis}, keepdims={keep})", ordered_only)


def multiplied(d: Drawer) -> None:
    if d.exact or (v := d.value("f", axes=1)) is None:
        return
    fitting = [w for w in d.values if w.dtype.kind == "f" and 0 < w.x.ndim <= 2
               and w.shape[-2:][0] == v.shape[-1]]
    if fitting:
        d.add(f"{v.name} @ {d.pick(fitting).name}", False)
    if v.x.ndim > 1:
        texts = ["{0}.mT @ {0}", "{0} @ {0}.mT", "{0}[..., ::2] @ {0}[..., ::2].mT",
                 "np.einsum('...ij,...kj->...ik', {0}, {0})",
                 "np.einsum('...ij,...ij->j...', {0}, {0})"]
        d.add(d.pick(texts).format(v.name), False)


def running(d: Drawer) -> None:
    """Sums, products and extremes of all entries so far, in one order everywhere."""
    if (v := d.value("fib" if d.exact else "fci", axes=1)) is not None:
        extremes = ["np.maximum.accumulate({}, {})", "np.minimum.accumulate({}, {})"]
        texts = ["np.cumsum({}, {})", "np.cumprod({}, {})"]
        texts += extremes * (v.dtype.kind in "fi" and v.exact)
        axis = d.number(0, v.x.ndim - 1)
        d.add(d.pick(texts).format(v.name, axis), v.exact and (d.exact or v.dtype.kind == "i"))


def solved(d: Drawer) -> None:
    """Linear algebra of well-conditioned matrices."""
    if d.exact or (v := d.value("f", axes=2)) is None or not v.x.size:
        return
    x = f"np.tanh({v.name})"
    spd = f"({x} @ {x}.mT + 3 * np.eye({v.shape[-2]}, dtype='{v.dtype.char}'))"
    texts = ["np.linalg.solve({1}, {0})", "np.linalg.solve({1}.mT, {0})", "np.linalg.inv({1})",
             "np.linalg.cholesky({1})", "np.linalg.slogdet({1})[1]", "np.linalg.eigvalsh({1})"]
    d.add(d.pick(texts).format(v.name, spd), False)


STEPS = [unary, unary, binary, binary, mixed, integers, logical, compared, ordered, chosen,
         converted, moved, moved, moved, gathered, joined, reduced, reduced, multiplied,
         running, solved, complex_unary, complex_unary, complex_binary, *FLOW]


@st.composite
def programs(draw: Callable, exact: bool = False, most: int = 14) -> Drawn:
    """Programs of some lines."""
    drawer = Drawer(draw, exact)
    return drawer.run(most)
