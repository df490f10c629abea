"""``python -m functrans``: what is installed, where it caches, and a first example, run."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import numpy

import functrans

EXAMPLE = """\
import numpy as np
import functrans as ft
f = lambda x: np.log(np.sum(np.exp(x)))
x = np.array([1.0, 2.0, 3.0])
print(ft.grad(f)(x), ft.hessian(f)(x), sep="\\n")
"""

# The features that decide how fast compiled loops run, widest vectors first.
NOTABLE = ("avx512f", "avx2", "avx", "fma", "sse4.2", "sve", "neon")


def cache_directory() -> Path:
    """Where compiled kernels are kept: ``FUNCTRANS_CACHE_DIR``, or the platform's cache."""
    if named := os.environ.get("FUNCTRANS_CACHE_DIR"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "functrans"


def processor() -> str:
    """The CPU as LLVM names it, and its notable features."""
    import llvmlite.binding as llvm  # lazy: slow to import

    features = llvm.get_host_cpu_features()
    present = [name for name in NOTABLE if features.get(name)]
    return f"{llvm.get_host_cpu_name()}: {', '.join(present) or 'no vector features known'}"


def main() -> None:
    """Print the report."""
    print(f"functrans {functrans.__version__}, NumPy {numpy.__version__}, "
          f"Python {platform.python_version()}")
    print(f"kernels   {cache_directory()}")
    print(f"processor {processor()}")
    print()
    print("".join(f">>> {line}\n" for line in EXAMPLE.splitlines()), end="")
    exec(EXAMPLE, {})


if __name__ == "__main__":
    main()
