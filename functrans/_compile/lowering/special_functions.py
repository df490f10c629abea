"""Where SciPy's special functions are: those that it offers to Cython, as C functions.

Native code calls them by name, so that object code on disk holds no address; the addresses are
looked up when it is loaded.
"""

from __future__ import annotations

import functools
import importlib
import re
import struct

from functrans._compile.lowering import routines

# What native code calls a function by.
PREFIX = "scipy_special_"
# Functions of doubles; the last argument is Cython's own. Of a name for several types this is one.
_OF_DOUBLES = re.compile(r"double \(((?:double, )+)int __pyx_skip_dispatch\)")
_FUSED = re.compile(r"^__pyx_fuse(?:_\d+)+")
_CALLED = re.compile(PREFIX.encode() + rb"\w+")


@functools.cache
def found() -> dict[str, int]:
    """The addresses of functions of doubles, by SciPy's names."""
    try:
        module = importlib.import_module("scipy.special.cython_special")
    except ImportError:
        return {}
    addresses = {}
    for name, capsule in module.__pyx_capi__.items():
        signature = routines.signature_of(capsule)
        if _OF_DOUBLES.fullmatch(signature.decode()):
            addresses[_FUSED.sub("", name)] = routines.pointer_of(capsule, signature)
    return addresses


def is_there(name: str) -> bool:
    """Whether native code can call the function of this name."""
    return name in OWN or name in found()


def called(code: bytes) -> set[str]:
    """SciPy's names of the functions that object code calls."""
    return {name.decode().removeprefix(PREFIX) for name in _CALLED.findall(code)} - OWN.keys()


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
    name = f"{PREFIX}zeta"
    lines = [
        f"define internal double @{name}(double %s, double %q, i32 %skip) #1 {{", "entry:",
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
        f"{PREFIX}zeta": _zeta(), "pow": "double double double",
        "llvm.floor.f64": "declare double @llvm.floor.f64(double)",
    },
}


__all__ = ["OWN", "PREFIX", "called", "found", "is_there"]
