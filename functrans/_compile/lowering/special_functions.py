"""Where SciPy's special functions are: those that it offers to Cython, as C functions.

Native code calls them by name, so that object code on disk holds no address; the addresses are
looked up when it is loaded. The most usual ones of one number have kernels of our own instead.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from functrans._compile.lowering.formulas import Emission, Emitted
from functrans._compile.lowering.numbers import Code, Rounding
from functrans._compile.lowering.special_kernels import AT, KERNELS
from functrans._kernels import routines
from functrans._ops import elementwise as ops

# What native code calls a function by.
PREFIX = "scipy_special_"
# What a function of doubles is called that calls SciPy's.
WRAPPED = "special_of_doubles_"
# Of numbers to a number, or to several behind pointers; the last arguments are Cython's own.
_RETURNS = re.compile(
    r"double \(((?:(?:double|long|Py_ssize_t), )+)int __pyx_skip_dispatch\)"
)
_FILLS = re.compile(r"void \((double, )((?:double \*(?:, )?)+)\)")
_FUSED = re.compile(r"^__pyx_fuse(?:_\d+)+")
_CALLED = re.compile(PREFIX.encode() + rb"\w+")


class Function(NamedTuple):
    """A C function: its address, the LLVM types of its operands, what is passed behind them.

    ``fills``: how many results it writes behind pointers, where it returns none.
    """

    address: int
    types: tuple[str, ...]
    fills: int = 0


@functools.cache
def available() -> dict[str, Function]:
    """The functions of real numbers, by SciPy's names; those of integers end in ``_long``."""
    try:
        module = importlib.import_module("scipy.special.cython_special")
    except ImportError:
        return {}
    functions: dict[str, Function] = {}
    for capsule_name, capsule in module.__pyx_capi__.items():
        name, signature = _FUSED.sub("", capsule_name), routines.signature_of(capsule)
        function = _function(signature.decode(), routines.pointer_of(capsule, signature))
        if function:
            functions[name + "_long" * ("i64" in function.types)] = function
    return functions


def _function(signature: str, address: int) -> Function | None:
    if match := _RETURNS.fullmatch(signature):
        types = ["double" if t == "double" else "i64" for t in match[1].split(", ")[:-1]]
        return Function(address, tuple(types))
    if match := _FILLS.fullmatch(signature):
        return Function(address, ("double",), fills=match[2].count("*"))
    return None


def is_there(name: str) -> bool:
    """Whether native code can call a function: a name, or that and the number of a result."""
    name = name.partition(".")[0]
    return name in OWN or name in available() or f"{name}_long" in available()


def called(code: bytes) -> set[str]:
    """SciPy's names of the functions that object code calls."""
    return {name.decode().removeprefix(PREFIX) for name in _CALLED.findall(code)}


def call(code: Code, lowering_of: Callable, name: str, t: str, *xs: str) -> str:
    """A call of a function, which computes in double precision."""
    for (general, number), kernel in AT.items():
        if name == general and xs[0] == code.number(t, number) and not code.precise:
            name, xs = kernel, xs[1:]
    code.functions |= _definition(name, len(xs), lowering_of, code.precise)
    xs = xs if t == "double" else tuple([code.op(f"fpext {t} {x} to double") for x in xs])
    given = ", ".join([f"double {x}" for x in xs])
    y = code.op(f"call double @{WRAPPED}{name}({given})")
    return y if t == "double" else code.op(f"fptrunc double {y} to {t}")


def _definition(name: str, arity: int, lowering_of: Callable, precise: bool) -> dict[str, str]:
    """What defines a function ``WRAPPED + name`` of doubles, as in ``Code.functions``."""
    kernel = None if precise else KERNELS.get(name)
    full, code, attributes = WRAPPED + name, Code(Rounding(precise, contract=bool(kernel))), "#1"
    xs = [Emitted(Emission(code, "double", lowering_of), "double", f"%x{i}") for i in range(arity)]
    if kernel:
        code.line(f"ret double {kernel(*xs).name}")
        attributes = "#1 alwaysinline"  # or loops around it are no vectors
    elif name in OWN:
        OWN[name](code, *xs)
    elif "." in name:
        _call_filling(code, *name.split("."))
    else:
        _call_either(code, name, xs)
    parameters = ", ".join([f"double {x.name}" for x in xs])
    text = code.function(f"internal double @{full}", parameters, attributes)
    return {**code.functions, full: text}


def _call_filling(code: Code, name: str, part: str) -> None:
    """A call of a function that writes its results, and the part-th of them."""
    ys = [code.op("alloca double") for _ in range(available()[name].fills)]
    code.functions[PREFIX + name] = (
        f"declare void @{PREFIX}{name}({', '.join(['double', *['ptr'] * len(ys)])})"
    )
    pointers = ", ".join([f"ptr {y}" for y in ys])
    code.line(f"call void @{PREFIX}{name}(double %x0, {pointers})")
    code.line(f"ret double {code.op(f'load double, ptr {ys[int(part)]}')}")


def _call_either(code: Code, name: str, xs: list) -> None:
    """A call of the function of doubles or, of whole numbers where it takes some, of integers."""
    functions = {n: f for n in (name, f"{name}_long") if (f := available().get(n))}
    if len(functions) == 2:
        orders = [x for x, t in zip(xs, functions[f"{name}_long"].types, strict=True) if t == "i64"]
        tests = [(x == ops.floor(x)) & (x < 1e9) & (x > -1e9) for x in orders]
        code.line(f"br i1 {functools.reduce(ops.bitwise_and, tests).name}, label %{name}_long, "
                  f"label %{name}")
    for n, f in functions.items():
        if len(functions) == 2:
            code.label(n)
        given = [f"i64 {code.op(f'fptosi double {x.name} to i64')}" if t == "i64"
                 else f"double {x.name}" for x, t in zip(xs, f.types, strict=True)]
        types = ", ".join([*f.types, "i32"])
        code.functions[PREFIX + n] = f"declare double @{PREFIX}{n}({types}) #1"
        y = code.op(f"call double @{PREFIX}{n}({', '.join([*given, 'i32 0'])})")
        code.line(f"ret double {y}")


# ---- functions that SciPy does not offer

# B_2k / (2k)!, k = 1, 2, ...
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)


def _zeta(code: Code, s: Any, q: Any) -> None:
    """Hurwitz's zeta function by Euler and Maclaurin's formula (DLMF 25.11.5).

    Terms are added up to a + n > 10, or until one adds nothing. As SciPy's, it is infinite at the
    poles q = 0, -1, ... and NaN for q < 0 with an exponent that is not whole.
    """
    trace = s.owner
    at, total = (code.op("alloca double") for _ in range(2))

    def load(x: str) -> Any:
        return Emitted(trace, "double", code.op(f"load double, ptr {x}"))

    def store(y: Any, x: str) -> None:
        code.line(f"store double {trace.name(y)}, ptr {x}")

    infinite, nan = (f"double {code.number('double', x)}" for x in (math.inf, math.nan))
    low = q <= 0
    for condition, value in (
        (s == 1, infinite), (ops.isnan(s) | ops.isnan(q) | (s < 1), nan),
        (low & (q == ops.floor(q)), infinite), (low & (s != ops.floor(s)), nan),
    ):
        code.leave_if(condition.name, value)
    code.line(f"br i1 {(q > 1e8).name}, label %far, label %near")
    code.label("far")
    y = (1 / (s - 1) + 1 / (q * 2)) * ops.power(q, 1 - s)
    code.line(f"ret double {y.name}")
    code.label("near")
    store(q, at)
    store(0, total)
    with code.loop("0", None):
        a, before = load(at), load(total)
        after, a = before + ops.power(a, -s), a + 1
        store(a, at)
        store(after, total)
        near = a <= 10
        code.line(f"br i1 {(near & (after != before)).name}, label %more, label %end")
        code.label("more")
    code.label("end")
    code.leave_if(near.name, f"double {after.name}")
    power = ops.power(a, -s)
    y, square, term = power * a / (s - 1) + power * 0.5, a * a, power * (s / a)
    for k, b in enumerate(_BERNOULLI):
        y, term = y + term * b, term * ((s + (2 * k + 1)) * (s + (2 * k + 2)) / square)
    code.line(f"ret double {(after + y).name}")


OWN: dict[str, Callable[..., None]] = {"zeta": _zeta}
