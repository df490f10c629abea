"""``python -m functrans``: the versions, the cache, the processor, and a first example, run."""

from __future__ import annotations

import platform

import numpy

import functrans
from functrans import cache

EXAMPLE = """\
import numpy as np
import functrans as ft
f = lambda x: np.log(np.sum(np.exp(x)))
x = np.array([1.0, 2.0, 3.0])
print(ft.grad(f)(x), ft.hessian(f)(x), sep="\\n")
"""

# The features that matter most for the speed of compiled loops, widest vectors first.
NOTABLE = ("avx512f", "avx2", "avx", "fma", "sse4.2", "sve", "neon")


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


def main() -> None:
    """Print the report."""
    print(f"functrans {functrans.__version__}, NumPy {numpy.__version__}, "
          f"Python {platform.python_version()}")
    print(f"kernels   {cache.directory()}")
    print(f"processor {processor()}")
    print()
    print("".join(f">>> {line}\n" for line in EXAMPLE.splitlines()), end="")
    exec(EXAMPLE, {})


if __name__ == "__main__":
    main()
