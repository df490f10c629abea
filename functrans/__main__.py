"""``python -m functrans``: versions, processor, BLAS, cache, a self-test, and a first example, run.

``--bug-report`` leaves the example out and adds what else an issue needs: the platform, settings,
and environment variables.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata

import numpy as np

import functrans as ft
from functrans import cache
from functrans._core.plain import FREE_THREADED

EXAMPLE = """\
import numpy as np
import functrans as ft
f = lambda x: np.log(np.sum(np.exp(x)))
x = np.array([1.0, 2.0, 3.0])
print(ft.grad(f)(x), ft.hessian(f)(x), sep="\\n")
"""

# The features that matter most for the speed of compiled loops, widest vectors first.
NOTABLE = ("avx512f", "avx2", "avx", "fma", "sse4.2", "sve", "neon")
LIBRARIES = ("scipy", "llvmlite", "ml_dtypes", "numba")
# Beginnings of the environment variables that change what is run.
VARIABLES = ("FUNCTRANS_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "NPY_", "PYTHON")


def interpreter() -> str:
    """The version of Python, and whether it runs threads side by side."""
    version = platform.python_version()
    if not FREE_THREADED:
        return version
    lock = "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"
    return f"{version} free-threaded, with its lock {lock}"


def versions() -> str:
    """Those of the libraries that are installed, which are not imported for it."""
    known = []
    for name in LIBRARIES:
        try:
            known.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            known.append(f"no {name}")
    return ", ".join(known)


def processor() -> str:
    """The CPU as LLVM names it, and its notable features."""
    from functrans._compile.run import machine  # lazy: slow to import

    try:
        llvm = machine.llvm_binding()
    except machine.NativeUnavailable as e:
        return f"no native code, jit runs through NumPy: {e}"
    features = llvm.get_host_cpu_features()
    present = [name for name in NOTABLE if features.get(name)]
    return f"{llvm.get_host_cpu_name()}: {', '.join(present) or 'no vector features known'}"


def native() -> str:
    """Whether ``jit`` compiles, and whether small programs are called by the short way."""
    from functrans._compile.run import entry, machine  # lazy: slow to import

    try:
        machine.local()
    except machine.NativeUnavailable as e:
        return f"off: {e}"
    if not entry.is_supported():
        return "on, but calls take the long way: this Python or NumPy keeps objects elsewhere"
    return "on"


def blas() -> str:
    """The library whose routines native code calls."""
    from functrans._kernels import routines  # lazy: slow to import

    found = routines.available()
    return "none that native code can call" if found is None else f"of {found.source}"


def keep() -> str:
    """Where compiled code is kept, and how much of it."""
    return f"{cache.directory()}, {len(cache.entries())} files, {cache.size() / 1e6:.1f} MB"


def faults() -> list[str]:
    """What the self-test finds wrong: derivatives against formulas, compiled code against NumPy."""
    x = np.linspace(0.1, 2.0, 7)

    def f(x):
        return np.sum(np.exp(-x * x) * np.sin(3 * x))

    slope = np.exp(-x * x) * (3 * np.cos(3 * x) - 2 * x * np.sin(3 * x))
    tests = {
        "reverse mode": lambda: (ft.grad(f)(x), slope),
        "forward mode": lambda: (ft.jacfwd(f)(x), slope),
        "compiled code": lambda: (ft.jit(ft.grad(f))(x), slope),
        "second order": lambda: (ft.hessian(lambda x: np.sum(x**3))(x), np.diag(6 * x)),
        "batches": lambda: (ft.vmap(ft.grad(lambda x: np.sin(x)))(x), np.cos(x)),
        "linear algebra": lambda: (
            ft.jit(ft.grad(lambda a: np.linalg.slogdet(a)[1]))(np.diag(x)), np.diag(1 / x)
        ),
    }
    return [name for name, run in tests.items() if not np.allclose(*run(), rtol=1e-12, atol=1e-14)]


def report() -> None:
    """Versions and what was found on this machine."""
    print(f"functrans {ft.__version__}, NumPy {np.__version__}, Python {interpreter()}")
    print(f"libraries {versions()}")
    print(f"processor {processor()}")
    print(f"jit       {native()}")
    print(f"BLAS      {blas()}")
    print(f"kernels   {keep()}")


def particulars() -> None:
    """What else an issue needs."""
    system = f"{platform.platform()}, {sys.implementation.name}"
    print(f"platform  {system}, {os.cpu_count()} processors")
    print(f"settings  {ft.config!r}")
    for name, value in sorted(os.environ.items()):
        if name.startswith(VARIABLES):
            print(f"          {name}={value}")


def main(arguments: Sequence[str] = ()) -> int:
    """Print the report; 1 if the self-test finds a fault."""
    parser = argparse.ArgumentParser("python -m functrans", description=__doc__)
    parser.add_argument("--bug-report", action="store_true", help="print what an issue needs")
    bug_report = parser.parse_args(arguments).bug_report
    report()
    if bug_report:
        particulars()
    wrong = faults()
    print(f"self-test {'passed' if not wrong else 'FAILED: ' + ', '.join(wrong)}")
    if not bug_report:
        print()
        print("".join(f">>> {line}\n" for line in EXAMPLE.splitlines()), end="")
        exec(EXAMPLE, {})
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
