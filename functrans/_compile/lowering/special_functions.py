"""Where SciPy's special functions are: those that it offers to Cython, as C functions.

Native code calls them by name, so that object code on disk holds no address; the addresses are
looked up when it is loaded.
"""

from __future__ import annotations

import functools
import importlib
import re
import struct
from typing import NamedTuple

from functrans._compile.lowering import routines

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


def definition(name: str, arity: int) -> dict[str, str]:
    """What defines a function ``PREFIX + name`` of doubles, as in ``Code.functions``.

    Its name there has no dot. Of an order that may be whole, SciPy has two functions.
    """
    if name in OWN:
        return OWN[name]
    plain, _, part = name.partition(".")
    functions = {n: f for n in (plain, f"{plain}_long") if (f := available().get(n))}
    own = [f"double %x{i}" for i in range(arity)]
    head = f"define internal double @{WRAPPED}{name}({', '.join(own)}) #1 {{\nentry:"
    filled = functions[plain].fills if part else 0
    lines = _filling(plain, int(part), filled) if part else _choosing(functions)
    declared = {PREFIX + n: _declaration(n, f) for n, f in functions.items()}
    if len(functions) == 2:
        declared["llvm.floor.f64"] = "declare double @llvm.floor.f64(double)"
    return {**declared, WRAPPED + name: "\n".join([head, *[f"  {line}" for line in lines], "}"])}


def _declaration(name: str, f: Function) -> str:
    if f.fills:
        return f"declare void @{PREFIX}{name}({', '.join(['double', *['ptr'] * f.fills])})"
    return f"declare double @{PREFIX}{name}({', '.join([*f.types, 'i32'])}) #1"


def _filling(name: str, part: int, fills: int) -> list[str]:
    pointers = ", ".join([f"ptr %y{i}" for i in range(fills)])
    return [
        *[f"%y{i} = alloca double" for i in range(fills)],
        f"call void @{PREFIX}{name}(double %x0, {pointers})",
        f"%y = load double, ptr %y{part}", "ret double %y",
    ]


def _choosing(functions: dict[str, Function]) -> list[str]:
    """The function of doubles or, of whole numbers where it takes integers, that of integers."""
    calls = []
    for name, f in functions.items():
        lines, given = [], []
        for i, t in enumerate(f.types):
            if t == "i64":
                lines.append(f"%n{i} = fptosi double %x{i} to i64")
            given.append(f"{t} %{'n' if t == 'i64' else 'x'}{i}, ")
        end = "_long" if name.endswith("_long") else ""
        lines += [f"%y{end} = call double @{PREFIX}{name}({''.join(given)}i32 0)",
                  f"ret double %y{end}"]
        calls.append(lines)
    if len(calls) == 1:
        return calls[0]
    (first, second), integers = calls, list(functions.values())[1].types
    test, last = [], "true"
    for i in [i for i, t in enumerate(integers) if t == "i64"]:
        test += [f"%f{i} = call double @llvm.floor.f64(double %x{i})",
                 f"%c{i} = fcmp oeq double %x{i}, %f{i}", f"%b{i} = fcmp olt double %f{i}, 1.0e9",
                 f"%a{i} = fcmp ogt double %f{i}, -1.0e9", f"%d{i} = and i1 %c{i}, %b{i}",
                 f"%e{i} = and i1 %d{i}, %a{i}", f"%g{i} = and i1 %e{i}, {last}"]
        last = f"%g{i}"
    jump = f"br i1 {last}, label %whole, label %other"
    return [*test, jump, "other:", *first, "whole:", *second]


# ---- functions that SciPy does not offer, as LLVM

# B_2k / (2k)!, k = 1, 2, ...
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)


def _zeta() -> str:
    """Hurwitz's zeta function by Euler and Maclaurin's formula (DLMF 25.11.5).

    Terms are added up to a + n > 10, or until one adds nothing. As SciPy's, it is infinite at the
    poles q = 0, -1, ... and NaN for q < 0 with an exponent that is not whole.
    """
    name = f"{WRAPPED}zeta"
    lines = [
        f"define internal double @{name}(double %s, double %q) #1 {{", "entry:",
        "  %minus = fneg double %s",
        "  %whole_q = call double @llvm.floor.f64(double %q)",
        "  %whole_s = call double @llvm.floor.f64(double %s)",
        "  %low = fcmp ole double %q, 0.0", "  %low_s = fcmp olt double %s, 1.0",
        "  %is_one = fcmp oeq double %s, 1.0",
        "  %at_whole = fcmp oeq double %q, %whole_q", "  %pole = and i1 %low, %at_whole",
        "  %at_power = fcmp une double %s, %whole_s", "  %undefined = and i1 %low, %at_power",
        "  %nan0 = fcmp uno double %s, %q", "  %nan1 = or i1 %nan0, %low_s",
        "  %bad = or i1 %nan1, %undefined",
        "  br i1 %is_one, label %infinite, label %zero", "zero:",
        "  br i1 %nan1, label %not, label %one", "one:",
        "  br i1 %pole, label %infinite, label %two", "two:",
        "  br i1 %bad, label %not, label %three", "three:",
        "  %large = fcmp ogt double %q, 1.0e8", "  br i1 %large, label %far, label %loop", "far:",
        "  %minus_one = fsub double %s, 1.0", "  %plus_one = fsub double 1.0, %s",
        "  %inverse = fdiv double 1.0, %minus_one", "  %twice = fmul double %q, 2.0",
        "  %small = fdiv double 1.0, %twice", "  %factor = fadd double %inverse, %small",
        "  %falling = call double @pow(double %q, double %plus_one)",
        "  %asymptotic = fmul double %factor, %falling", "  ret double %asymptotic",
        "not:", "  ret double 0x7FF8000000000000",
        "infinite:", "  ret double 0x7FF0000000000000", "loop:",
        "  %a = phi double [ %q, %three ], [ %next, %loop ]",
        "  %sum = phi double [ 0.0, %three ], [ %more, %loop ]",
        "  %term = call double @pow(double %a, double %minus)",
        "  %more = fadd double %sum, %term", "  %next = fadd double %a, 1.0",
        "  %near = fcmp ole double %next, 1.0e1", "  %moved = fcmp une double %more, %sum",
        "  %again = and i1 %near, %moved",
        "  br i1 %again, label %loop, label %tail", "tail:",
        "  %still = fcmp ole double %next, 1.0e1", "  br i1 %still, label %early, label %rest",
        "early:", "  ret double %more", "rest:",
        "  %power = call double @pow(double %next, double %minus)",
        "  %less = fsub double %s, 1.0", "  %scaled = fmul double %power, %next",
        "  %integral = fdiv double %scaled, %less", "  %half = fmul double %power, 0.5",
        "  %y0 = fadd double %integral, %half", "  %square = fmul double %next, %next",
        "  %over = fdiv double %s, %next", "  %t0 = fmul double %power, %over",
    ]
    for k, b in enumerate(_BERNOULLI):
        bits = struct.pack(">d", b).hex().upper()
        first, second = (struct.pack(">d", float(2 * k + i)).hex().upper() for i in (1, 2))
        lines += [
            f"  %b{k} = fmul double %t{k}, 0x{bits}", f"  %y{k + 1} = fadd double %y{k}, %b{k}",
            f"  %u{k} = fadd double %s, 0x{first}", f"  %v{k} = fadd double %s, 0x{second}",
            f"  %w{k} = fmul double %u{k}, %v{k}", f"  %r{k} = fdiv double %w{k}, %square",
            f"  %t{k + 1} = fmul double %t{k}, %r{k}",
        ]
    n = len(_BERNOULLI)
    lines += [f"  %y = fadd double %more, %y{n}", "  ret double %y", "}"]
    return "\n".join(lines)


# The definition of each, and declarations of what it calls, as in ``Code.functions``.
OWN: dict[str, dict[str, str]] = {
    "zeta": {
        f"{WRAPPED}zeta": _zeta(), "pow": "double double double",
        "llvm.floor.f64": "declare double @llvm.floor.f64(double)",
    },
}
