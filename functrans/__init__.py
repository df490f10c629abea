"""Exact derivatives of NumPy code, of any order, in any composition.

>>> import functrans as ft, numpy as np
>>> ft.grad(lambda x: np.sum(np.sin(x) ** 2))(np.array([0.0, 1.0]))
Array([0.        , 0.90929743])
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

from functrans import cache, errors, numpy, scipy, tree
from functrans._core import version as _version
from functrans._core.array import Array
from functrans._kernels import large as _large
from functrans._transforms.forward.api import derivative, jvp
from functrans._transforms.reach import eval_shape, make_program
from functrans._transforms.reverse.api import linear_transpose, linearize, vjp
from functrans._transforms.reverse.grad import grad, value_and_grad
from functrans._transforms.rules.custom import custom_jvp, custom_vjp, stop_gradient
from functrans._transforms.staging import native_rows as _native_rows
from functrans._transforms.staging.jit import jit
from functrans._transforms.vmap import vmap
from functrans.config import config
from functrans.export import export, load
from functrans.numpy.public import immutable as _immutable
from functrans.patch import patch

array = _immutable(numpy.array)

if TYPE_CHECKING:
    from functrans import debug as debug
    from functrans import extend as extend
    from functrans import numba as numba
    from functrans import parallel as parallel
    from functrans import profile as profile
    from functrans import random as random
    from functrans import testing as testing
    from functrans._segments import segment_sum
    from functrans._transforms.control.api import cond, fori_loop, switch, while_loop
    from functrans._transforms.control.associative import associative_scan
    from functrans._transforms.control.maps import map
    from functrans._transforms.control.revolve import Revolve
    from functrans._transforms.control.scan import scan
    from functrans._transforms.forward.jet import jet
    from functrans._transforms.matrices.diagonals import hessian_diagonal, laplacian
    from functrans._transforms.matrices.jacobian import hessian, jacfwd, jacobian, jacrev
    from functrans._transforms.matrices.operators import ggnvp, hutchinson, linear_operator
    from functrans._transforms.matrices.products import elementwise_grad, hvp, vhp
    from functrans._transforms.reverse.checkpoint import checkpoint
    from functrans._transforms.rounding.certify import certify
    from functrans._transforms.rules.external import external
    from functrans._transforms.sparse.api import sparse_hessian, sparse_jacobian, sparsity
    from functrans.interop import jax_function, torch_function

__version__ = _version.VERSION

_large.install(_native_rows)

__all__ = [
    "Array", "Revolve", "array", "associative_scan", "cache", "certify", "checkpoint", "cond",
    "config", "custom_jvp", "custom_vjp", "derivative", "elementwise_grad", "errors", "eval_shape",
    "export", "external", "fori_loop", "ggnvp", "grad", "hessian", "hessian_diagonal", "hutchinson",
    "hvp", "jacfwd", "jacobian", "jacrev", "jax_function", "jet", "jit", "jvp", "laplacian",
    "linear_operator", "linear_transpose", "linearize", "load", "make_program", "map", "numpy",
    "patch", "scan", "scipy", "segment_sum", "sparse_hessian", "sparse_jacobian", "sparsity",
    "stop_gradient", "switch", "torch_function", "tree", "value_and_grad", "vhp", "vjp", "vmap",
    "while_loop",
]


# Public names that are imported when they are used, by the module that has them.
_LAZY = {
    "_segments": ("segment_sum",),
    "_transforms.control.api": ("cond", "fori_loop", "switch", "while_loop"),
    "_transforms.control.associative": ("associative_scan",),
    "_transforms.control.maps": ("map",),
    "_transforms.control.revolve": ("Revolve",),
    "_transforms.control.scan": ("scan",),
    "_transforms.forward.jet": ("jet",),
    "_transforms.matrices.diagonals": ("hessian_diagonal", "laplacian"),
    "_transforms.matrices.jacobian": ("hessian", "jacfwd", "jacobian", "jacrev"),
    "_transforms.matrices.operators": ("ggnvp", "hutchinson", "linear_operator"),
    "_transforms.matrices.products": ("elementwise_grad", "hvp", "vhp"),
    "_transforms.reverse.checkpoint": ("checkpoint",),
    "_transforms.rounding.certify": ("certify",),
    "_transforms.rules.external": ("external",),
    "_transforms.sparse.api": ("sparse_hessian", "sparse_jacobian", "sparsity"),
    "interop": ("jax_function", "torch_function"),
}
_HOMES = {name: f"functrans.{module}" for module, names in _LAZY.items() for name in names}


def _modules() -> list[str]:
    """The public modules of the package, imported or not."""
    return [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]


if not TYPE_CHECKING:  # to a type checker, any name would be known

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
            return globals()[name]
        if not name.startswith("_") and name in _modules():
            return importlib.import_module(f"functrans.{name}")
        from functrans._other_names import MODULES, Elsewhere, absent  # lazy: errors alone read it

        if name in MODULES:
            return Elsewhere(name, __all__)
        raise absent(sys.modules[__name__], name)


def __dir__() -> list[str]:
    """The public names, for completion; nothing is imported for it."""
    return sorted({*__all__, *_modules(), "__version__"})
